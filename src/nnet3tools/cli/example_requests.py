"""The computation requests that trainers make for examples of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnet3tools.chain.languages import language_of, with_language
from nnet3tools.chain.minibatch import CHAIN_MINIBATCH
from nnet3tools.chain.sequence_objective import SequenceObjective
from nnet3tools.discriminative.example import DISCRIMINATIVE_MINIBATCH
from nnet3tools.errors import ProgramError
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.io.holder import Holder
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import EXAMPLE, NnetExample, for_each_of_kind
from nnet3tools.training.objective import FrameObjective, Measured
from nnet3tools.training.running import check_dim, computation_request

_HOLDERS = {"<Nnet3ChainEg>": CHAIN_MINIBATCH, "<Nnet3DiscriminativeEg>": DISCRIMINATIVE_MINIBATCH}


class AnyKindObjective(SequenceObjective):
    """An objective that only tells which network outputs to request for an example of any kind."""

    def __init__(self, xent_regularize: float = 0.0) -> None:
        super().__init__(xent_regularize, xent_deriv=True, apply_deriv_weights=True)

    def outputs(self, nnet: Nnet, example: NnetExample, need_deriv: bool) -> list[IoSpecification]:
        """The outputs to request: those for which the example has targets or a supervision."""
        if example.supervisions:
            return super().outputs(nnet, example, need_deriv)
        return FrameObjective().outputs(nnet, example, need_deriv)

    @staticmethod
    def sequences_of(supervision: Any) -> Any:
        """The part of a supervision that describes its sequences; for chain its field `chain`."""
        return getattr(supervision, "chain", supervision)

    def measure(self, *args: object) -> list[Measured]:
        raise ProgramError("this objective only names outputs")


def for_each_request(
    nnet: Nnet,
    rspecifier: str,
    flags: tuple[bool, bool],
    xent_regularize: float,
    work: Callable[[str, ComputationRequest], object],
) -> int:
    """Call `work` with the key and the request of each example; returns the number of examples.

    `flags`: request (model derivative, statistics); `xent_regularize`: if not 0, -xent outputs.
    """
    objective = AnyKindObjective(xent_regularize)

    def request_for(key: str, example: NnetExample) -> None:
        request = computation_request(nnet, example, *flags, objective)
        for io in example.io:
            check_dim(nnet, io)
        work(key, request)

    return for_each_of_any_kind(rspecifier, request_for)


def for_each_of_any_kind(rspecifier: str, work: Callable[[str, NnetExample], None]) -> int:
    """Call `work` with each key and example of a table; returns the number of examples.

    The examples may be frame-level, chain or discriminative ones. If a chain example's key names a
    language, its outputs are named as by nnet3-chain-train2.
    """

    def named(key: str, example: NnetExample) -> NnetExample:
        is_chain = any(hasattr(s, "chain") for s in example.supervisions)
        return with_language(key, example) if is_chain and language_of(key, "") else example

    holder = Holder("an example", lambda r: _HOLDERS.get(r.peek_token(), EXAMPLE).read(r))
    return for_each_of_kind(holder, rspecifier, work, adapt=named)
