"""Makes chain examples in blocks of many chunks (nnet3-chain-get-egs)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nnet3tools.chain.assembly import Assembler, Planned
from nnet3tools.chain.cutting import SupervisionCutter
from nnet3tools.chain.encoded_examples import (
    ACCEPTOR,
    EncodedChainExample,
    EncodedSupervision,
    supervision_weight,
)
from nnet3tools.chain.example import NnetChainExample
from nnet3tools.chain.example_plan import ExamplePlan
from nnet3tools.chain.generation import ChainExampleMaker, UtteranceData
from nnet3tools.chain.native.supervisor import Job, JobKind, native_supervisor
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import NotFiniteError, naming
from nnet3tools.fst.compact_reader import acceptors_of_bytes
from nnet3tools.io import log
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.general_matrix import GeneralMatrix, check_finite
from nnet3tools.training.splitting import Chunk

_BLOCK = 512
_MOST_BYTES = 1 << 23
"""The largest number of chunks, and of bytes of features, in a block."""

Write = Callable[[str, NnetChainExample | EncodedChainExample], None]


class _Waiting(NamedTuple):
    """A chunk whose example has not been made yet."""

    utterance: UtteranceData
    supervision: EncodedSupervision
    chunk: Chunk
    plan: ExamplePlan


class _Blocks:
    """Makes chain examples from chunks of utterances, many chunks at a time, in order."""

    def __init__(self, maker: ChainExampleMaker, write: Write) -> None:
        self._maker, self._write = maker, write
        normalization = None if maker.normalizer is None else maker.normalizer.fst
        self._native = None if maker.convert is not None else native_supervisor(normalization)
        self._assembler = Assembler(maker.compress, is_e2e=False)
        self._waiting: list[_Waiting] = []
        self._num_bytes = 0

    def add(self, utterance: UtteranceData) -> int:
        """Make the examples of an utterance now or with a later block; returns their number."""
        maker, given = self._maker, utterance.supervision
        if self._native is None or not isinstance(given, EncodedRecord):
            return self._make_now(utterance)
        num_frames = maker.frames_with_output(utterance.features, utterance.num_output)
        chunks = maker.chunks(utterance.name, num_frames)
        for chunk in chunks:
            plan = maker.plan(chunk, utterance, num_frames)
            self._waiting.append(_Waiting(utterance, given, chunk, plan))
        num_rows, num_cols = utterance.features.shape
        self._num_bytes += 4 * num_rows * num_cols
        if len(self._waiting) >= _BLOCK or self._num_bytes > _MOST_BYTES:
            self.finish()
        return len(chunks)

    def _make_now(self, utterance: UtteranceData) -> int:
        self.finish()
        count = 0
        with naming(f"utterance '{utterance.name}'"):
            for key, example in self._maker.examples(utterance):
                self._write(key, example)
                count += 1
        return count

    def finish(self) -> None:
        """Make and write the examples of all waiting chunks."""
        waiting, self._waiting, self._num_bytes = self._waiting, [], 0
        if not waiting:
            return
        acceptors = self._acceptors(waiting)
        made = self._assembler.assembled(list(map(_planned, waiting, acceptors)))
        cutter_of = functools.lru_cache(maxsize=1)(_cutter)
        for item, acceptor, example in zip(waiting, acceptors, made, strict=True):
            key = self._maker.key(item.utterance.name, item.chunk)
            self._write(key, example or self._in_full(item, acceptor, cutter_of))

    def _acceptors(self, waiting: list[_Waiting]) -> list[bytes | None]:
        """The encoded acceptor of each chunk; None where the C library cannot make it."""
        assert self._native is not None
        data = bytearray()
        jobs: list[Job] = []
        last = None
        at = 0
        for item in waiting:
            if item.supervision is not last:
                last, at = item.supervision, len(data)
                data += last.hole(ACCEPTOR)
            frames = self._maker.frames_of(item.chunk)
            jobs.append(Job(at, *frames, item.utterance.num_output))
        return self._native.make(JobKind.PIECES, bytes(data), jobs)

    def _in_full(
        self,
        item: _Waiting,
        acceptor: bytes | None,
        cutter_of: Callable[[EncodedSupervision], SupervisionCutter],
    ) -> NnetChainExample:
        """The unencoded example of a chunk; if `acceptor` is None, its supervision is cut here."""
        if acceptor is None:
            piece = self._cut(item, cutter_of(item.supervision))
        else:
            piece = _read(item, acceptor)
        with naming(f"utterance '{item.utterance.name}'"):
            return item.plan.example(piece, self._maker.compress)

    def _cut(self, item: _Waiting, cutter: SupervisionCutter) -> Supervision:
        name = item.utterance.name
        with naming(f"utterance '{name}'"):
            piece = self._maker.piece(name, item.chunk, cutter)
        assert piece is not None, "only conversion may return None, and it is not done in blocks"
        return piece


def _read(item: _Waiting, acceptor: bytes) -> Supervision:
    """The supervision of a waiting chunk, given its encoded acceptor."""
    given, num_frames = item.supervision, len(item.plan.deriv_weights)
    (fst,) = acceptors_of_bytes([(acceptor, 0)])
    label_dim = given.layout.values["label_dim"]
    return Supervision(supervision_weight(given), 1, num_frames, label_dim, fst)


def _planned(item: _Waiting, acceptor: bytes | None) -> Planned | None:
    if acceptor is None:
        return None
    given = item.supervision
    label_dim = given.layout.values["label_dim"]
    return Planned(item.plan, supervision_weight(given), label_dim, acceptor)


def _cutter(supervision: EncodedSupervision) -> SupervisionCutter:
    return SupervisionCutter(supervision.whole())


def make_chain_examples(
    features: Iterable[tuple[str, GeneralMatrix]],
    find: Callable[[str, GeneralMatrix], UtteranceData | None],
    maker: ChainExampleMaker,
    write: Write,
) -> None:
    """Write the chain examples of all utterances.

    `find(utterance, features)` returns the data of the utterance, or None after a warning.
    Utterances whose features are not finite, or whose lengths do not match, are left out.
    """
    num_errors = 0
    blocks = _Blocks(maker, write)
    for name, matrix in features:
        utterance = find(name, matrix)
        try:
            check_finite(f"features of utterance '{name}'", matrix)
        except NotFiniteError as error:
            log.skipped(error)
            utterance = None
        if utterance is None or not maker.lengths_match(utterance) or not blocks.add(utterance):
            num_errors += 1
    blocks.finish()
    if num_errors:
        log.warning(f"{num_errors} utterances had errors and could not be processed.")
