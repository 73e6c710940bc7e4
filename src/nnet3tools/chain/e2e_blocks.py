"""Makes end-to-end chain examples in blocks of utterances (nnet3-chain-e2e-get-egs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.assembly import Assembler, Planned
from nnet3tools.chain.e2e import DrawIvector, E2eExampleMaker
from nnet3tools.chain.encoded_examples import EncodedChainExample
from nnet3tools.chain.encoded_graphs import EncodedGraph
from nnet3tools.chain.example import NnetChainExample
from nnet3tools.chain.example_normalization import joined_jobs
from nnet3tools.chain.example_plan import ExamplePlan
from nnet3tools.chain.native.supervisor import JobKind, native_supervisor
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import naming
from nnet3tools.fst.fst import Fst

_BLOCK = 256
_MOST_BYTES = 1 << 23
"""The largest number of utterances, and of bytes of features, in a block."""

Write = Callable[[str, NnetChainExample | EncodedChainExample], None]


class _Waiting(NamedTuple):
    """An utterance whose example has not been made yet."""

    key: str
    graph: EncodedGraph | Fst
    features: NDArray[np.float32]
    extension: int
    draw_ivector: DrawIvector | None


class _Ready(NamedTuple):
    """An utterance with its supervision, which the C library (`acceptor`) or Python made."""

    item: _Waiting
    plan: ExamplePlan
    acceptor: bytes | None
    supervision: Supervision | None


class E2eBlocks:
    """Makes end-to-end examples, block by block, and calls `write(key, example)` in input order.

    `where` is the rspecifier of the graphs, for error messages.
    """

    def __init__(self, maker: E2eExampleMaker, write: Write, where: str) -> None:
        self._maker, self._write, self._where = maker, write, where
        normalization = None if maker.normalizer is None else maker.normalizer.fst
        self._native = native_supervisor(normalization, maker.labels)
        self._assembler = Assembler(maker.compress, is_e2e=True)
        self._waiting: list[_Waiting] = []
        self._num_bytes = 0
        self.num_written = self.num_errors = 0
        """The number of examples written, and of utterances without one."""

    def accept(
        self,
        key: str,
        graph: EncodedGraph | Fst,
        features: NDArray[np.float32],
        draw_ivector: DrawIvector | None,
    ) -> None:
        """Add an utterance; DataError if no allowed length is near its number of frames."""
        with naming(f"{self._where}: key '{key}'"):
            extension = self._maker.extension(key, len(features))
        self._waiting.append(_Waiting(key, graph, features, extension, draw_ivector))
        self._num_bytes += features.nbytes
        if self._native is None or len(self._waiting) >= _BLOCK or self._num_bytes > _MOST_BYTES:
            self.finish()

    def finish(self) -> None:
        """Make and write the examples of all waiting utterances."""
        waiting, self._waiting, self._num_bytes = self._waiting, [], 0
        pairs = zip(waiting, self._acceptors(waiting), strict=True)
        ready = [found for pair in pairs if (found := self._ready(*pair)) is not None]
        made = self._assembler.assembled([self._planned(found) for found in ready])
        for found, example in zip(ready, made, strict=True):
            self._write(found.item.key, example or self._in_full(found))
        self.num_written += len(ready)
        self.num_errors += len(waiting) - len(ready)

    def _acceptors(self, waiting: list[_Waiting]) -> list[bytes | None]:
        """The encoded acceptor of each graph; None where the C library cannot make it."""
        found: list[bytes | None] = [None] * len(waiting)
        places = [i for i, item in enumerate(waiting) if isinstance(item.graph, EncodedGraph)]
        if self._native is None or not places:
            return found
        graphs = [waiting[i].graph.data for i in places]  # type: ignore[union-attr]
        data, jobs = joined_jobs(graphs)
        sizes = [self._num_output(waiting[i]) for i in places]
        jobs = [job._replace(size=size) for job, size in zip(jobs, sizes, strict=True)]
        for i, acceptor in zip(places, self._native.make(JobKind.GRAPHS, data, jobs), strict=True):
            found[i] = acceptor
        return found

    def _num_output(self, item: _Waiting) -> int:
        return self._maker.num_output(len(item.features) + item.extension)

    def _ready(self, item: _Waiting, acceptor: bytes | None) -> _Ready | None:
        """The utterance with its plan; None, without random draws, if it has no supervision."""
        supervision = None
        if acceptor is None and (supervision := self._supervision(item)) is None:
            return None
        plan = self._maker.plan(item.features, item.extension, item.draw_ivector)
        return _Ready(item, plan, acceptor, supervision)

    def _supervision(self, item: _Waiting) -> Supervision | None:
        graph = item.graph.whole() if isinstance(item.graph, EncodedGraph) else item.graph
        with naming(f"{self._where}: key '{item.key}'"):
            return self._maker.supervision(item.key, graph, self._num_output(item))

    def _planned(self, found: _Ready) -> Planned | None:
        if found.acceptor is None:
            return None
        num_pdfs = self._maker.transition_model.num_pdfs
        return Planned(found.plan, 1.0, num_pdfs, found.acceptor)

    def _in_full(self, found: _Ready) -> NnetChainExample:
        supervision = found.supervision or self._supervision(found.item)
        assert supervision is not None, "the C library made an acceptor"
        with naming(f"utterance '{found.item.key}'"):
            return found.plan.example(supervision, self._maker.compress)
