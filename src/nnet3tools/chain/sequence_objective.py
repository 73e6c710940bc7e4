"""The base class of the chain and discriminative objectives."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any

from nnet3tools import tensor
from nnet3tools.chain.sequences import SequenceOutput
from nnet3tools.errors import DataError
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.graph.request import IoSpecification
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.arrays import Array
from nnet3tools.training.example import NnetExample
from nnet3tools.training.objective import Evaluation, Measured, Objective

_weight_rows = tensor.element("_1 *= _2")


class SequenceObjective(Objective):
    """Base of the objectives whose supervision is made of sequences (chain and discriminative).

    If `xent_regularize` is not 0, the cross-entropy of the output NAME-xent is measured, too. With
    `xent_deriv`, `xent_regularize` times the cross-entropy's derivative is computed. With
    `apply_deriv_weights`, derivatives are multiplied by the weights of frames.
    """

    def __init__(self, xent_regularize: float, xent_deriv: bool, apply_deriv_weights: bool) -> None:
        self._has_xent, self._xent_deriv = xent_regularize != 0.0, xent_deriv
        self._xent_regularize = xent_regularize
        self._apply_deriv_weights = apply_deriv_weights

    @staticmethod
    def sequences_of(supervision: Any) -> SequenceOutput[Any]:
        """The output's name, indexes and supervision in `supervision`, an entry of an example."""
        return supervision

    @abstractmethod
    def measure(
        self, supervision: Any, computer: NnetComputer, derivs: tuple[Array, ...]
    ) -> list[Measured]:
        """The objective of one output, and of its -xent output; writes the derivatives.

        `derivs` has the arrays to write: none, the output's, or also the -xent output's. The
        derivatives are without the weights of frames and without `xent_regularize`. `supervision`
        is one of an example's `supervisions`.
        """

    def names_of(self, supervision: Any) -> tuple[str, ...]:
        """The name of the supervision's output and, with cross-entropy, of its -xent output."""
        name = self.sequences_of(supervision).name
        return (name, f"{name}-xent") if self._has_xent else (name,)

    def outputs(self, nnet: Nnet, example: NnetExample, need_deriv: bool) -> list[IoSpecification]:
        """The requested output of each supervision, followed by its -xent output, if any.

        With `need_deriv`, derivatives at outputs will be given. DataError if `nnet` lacks an
        output.
        """
        found = []
        for supervision in example.supervisions:
            indexes = self.sequences_of(supervision).indexes
            derivs = (need_deriv, need_deriv and self._xent_deriv)
            named = zip(self.names_of(supervision), derivs, strict=False)
            found += [IoSpecification(name, indexes, has_deriv) for name, has_deriv in named]
        for spec in found:
            node = nnet.node_index(spec.name)
            if node < 0 or not nnet.is_output(node):
                raise DataError(
                    f"example has output named '{spec.name}', but no such output node is in the "
                    "network"
                )
        return found

    def evaluations(
        self, nnet: Nnet, example: NnetExample, computer: NnetComputer, need_deriv: bool
    ) -> list[Evaluation]:
        """Return an Evaluation for each output; its run computes the objective, and -xent's.

        With `need_deriv` the run also writes the derivatives into the input buffers of `computer`.
        """
        found = []
        for supervision in example.supervisions:
            names = self.names_of(supervision)
            with_deriv = (names if self._xent_deriv else names[:1]) if need_deriv else ()
            derivs = tuple([computer.input_buffer(name) for name in with_deriv])
            run = partial(self._measure_weighted, supervision, computer, derivs)
            sequences = self.sequences_of(supervision).supervision
            weight = sequences.weight * sequences.num_frames
            found.append(Evaluation(names, derivs, weight, run, is_alike=False))
        return found

    def _measure_weighted(
        self, supervision: Any, computer: NnetComputer, derivs: tuple[Array, ...]
    ) -> list[Measured]:
        """Call `measure`, then multiply `derivs` by frame weights and `xent_regularize`."""
        found = self.measure(supervision, computer, derivs)
        weights = self.sequences_of(supervision).deriv_weights
        if self._apply_deriv_weights and len(weights):
            for deriv in derivs:
                _weight_rows(deriv, tensor.asarray(weights, like=deriv)[:, None])
        for deriv in derivs[1:]:
            tensor.scale(deriv, self._xent_regularize)
        return found
