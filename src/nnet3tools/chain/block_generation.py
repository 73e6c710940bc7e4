"""Makes chain examples in blocks of many chunks (nnet3-chain-get-egs)."""

from __future__ import annotations

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
    chunk: Chunk
    plan: ExamplePlan
    piece: Supervision | None
    """The chunk's supervision; None if the C library is to cut it."""


class _Blocks:
    """Makes chain examples from chunks of utterances, many chunks at a time, in order."""

    def __init__(self, maker: ChainExampleMaker, write: Write) -> None:
        self._maker, self._write = maker, write
        normalization = None if maker.normalizer is None else maker.normalizer.fst
        self._native = None if maker.convert is not None else native_supervisor(normalization)
        self._assembler = Assembler(maker.compress, is_e2e=False)
        self._waiting: list[_Waiting] = []
        self._num_bytes = 0
        self._cutter_of: tuple[UtteranceData, SupervisionCutter] | None = None

    def add(self, utterance: UtteranceData) -> int:
        """Make the examples of an utterance now or with a later block; returns their number."""
        maker = self._maker
        in_python = self._native is None or not isinstance(utterance.supervision, EncodedRecord)
        if in_python:
            self.finish()
        num_frames = maker.frames_with_output(utterance.features, utterance.num_output)
        chunks, count = maker.chunks(utterance.name, num_frames), 0
        for chunk in chunks:
            piece = self._cut(utterance, chunk) if in_python else None
            if piece is None and in_python:
                continue
            plan = maker.plan(chunk, utterance, num_frames)
            self._waiting.append(_Waiting(utterance, chunk, plan, piece))
            count += 1
        num_rows, num_cols = utterance.features.shape
        self._num_bytes += 4 * num_rows * num_cols
        if in_python or len(self._waiting) >= _BLOCK or self._num_bytes > _MOST_BYTES:
            self.finish()
        return count

    def finish(self) -> None:
        """Make and write the examples of all waiting chunks."""
        waiting, self._waiting, self._num_bytes = self._waiting, [], 0
        if not waiting:
            return
        acceptors = self._acceptors(waiting)
        made = self._assembler.assembled(list(map(_planned, waiting, acceptors)))
        for item, acceptor, example in zip(waiting, acceptors, made, strict=True):
            key = self._maker.key(item.utterance.name, item.chunk)
            self._write(key, example or self._in_full(item, acceptor))

    def _acceptors(self, waiting: list[_Waiting]) -> list[bytes | None]:
        """The encoded acceptor of each chunk; None where the C library cannot make it."""
        if self._native is None or waiting[0].piece is not None:
            return [None] * len(waiting)
        data = bytearray()
        jobs: list[Job] = []
        last = None
        at = 0
        for item in waiting:
            if item.utterance is not last:
                last, at = item.utterance, len(data)
                data += _encoded(item).hole(ACCEPTOR)
            frames = self._maker.frames_of(item.chunk)
            jobs.append(Job(at, *frames, item.utterance.num_output))
        return self._native.make(JobKind.PIECES, bytes(data), jobs)

    def _in_full(self, item: _Waiting, acceptor: bytes | None) -> NnetChainExample:
        """The unencoded example of a chunk; its supervision is cut here if nothing has cut it."""
        piece = item.piece if acceptor is None else _read(item, acceptor)
        if piece is None:
            piece = self._cut(item.utterance, item.chunk)
        assert piece is not None, "only conversion may return None, and C does not convert"
        with naming(f"utterance '{item.utterance.name}'"):
            return item.plan.example(piece, self._maker.compress)

    def _cut(self, utterance: UtteranceData, chunk: Chunk) -> Supervision | None:
        """The supervision of a chunk, cut in Python; None, after a warning, if unusable."""
        with naming(f"utterance '{utterance.name}'"):
            if self._cutter_of is None or self._cutter_of[0] is not utterance:
                self._cutter_of = utterance, SupervisionCutter(utterance.whole_supervision())
            return self._maker.piece(utterance.name, chunk, self._cutter_of[1])


def _read(item: _Waiting, acceptor: bytes) -> Supervision:
    """The supervision of a waiting chunk, given its encoded acceptor."""
    given, num_frames = _encoded(item), len(item.plan.deriv_weights)
    (fst,) = acceptors_of_bytes([(acceptor, 0)])
    label_dim = given.layout.values["label_dim"]
    return Supervision(supervision_weight(given), 1, num_frames, label_dim, fst)


def _planned(item: _Waiting, acceptor: bytes | None) -> Planned | None:
    if acceptor is None:
        return None
    given = _encoded(item)
    label_dim = given.layout.values["label_dim"]
    return Planned(item.plan, supervision_weight(given), label_dim, acceptor)


def _encoded(item: _Waiting) -> EncodedSupervision:
    assert isinstance(item.utterance.supervision, EncodedRecord)
    return item.utterance.supervision


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
