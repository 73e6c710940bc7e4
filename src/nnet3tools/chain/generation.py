"""Divides utterances into chunks and makes their chain examples (nnet3-chain-get-egs)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from nnet3tools import draws
from nnet3tools.chain.assembly import ExampleBlocks, ExamplePlan, Waiting
from nnet3tools.chain.example import EncodedChainExample, NnetChainExample
from nnet3tools.chain.example_format import ACCEPTOR, supervision_weight
from nnet3tools.chain.native.supervisor import Job, JobKind, native_supervisor
from nnet3tools.chain.normalization import NO_SHARED_PATH, Normalizer
from nnet3tools.chain.supervision import EncodedSupervision, Supervision, SupervisionCutter
from nnet3tools.errors import NotFiniteError, naming
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.general_matrix import GeneralMatrix, check_finite
from nnet3tools.training.generation import IvectorSource
from nnet3tools.training.splitting import Chunk, UtteranceSplitter

Write = Callable[[str, NnetChainExample | EncodedChainExample], None]


@dataclass(frozen=True)
class ChainExampleMaker:
    """Makes chain examples from chunks of utterances.

    `compress`: inputs are compressed. `long_key`: keys contain the chunk's contexts and length.
    Lengths of features and supervision may differ by `supervision_tolerance` output frames.
    `convert`, if given, turns a supervision of transition ids into an end-to-end one, or returns
    None after a warning. `normalizer`, if given, adds the normalization FST's weights.
    """

    splitter: UtteranceSplitter
    compress: bool = True
    long_key: bool = False
    supervision_tolerance: int = 1
    convert: Callable[[Supervision], Supervision | None] | None = None
    normalizer: Normalizer | None = None
    ivectors: IvectorSource | None = None

    @property
    def _factor(self) -> int:
        return self.splitter.options.frame_subsampling_factor

    def lengths_match(self, utterance: UtteranceData) -> bool:
        """Whether features, supervision and derivative weights match in length; warns if not."""
        num_output = utterance.num_output
        tolerance, weights = self.supervision_tolerance, utterance.deriv_weights
        if weights is not None and abs(len(weights) - num_output) > tolerance:
            log.warning(
                f"For utterance {utterance.name}, mismatch between deriv-weights dim and "
                f"num-output-frames; {len(weights)} vs {num_output}"
            )
            return False
        num_frames = utterance.features.shape[0]
        return self.splitter.lengths_match(utterance.name, num_frames, num_output, tolerance)

    def blocks(self, write: Write) -> ExampleBlocks:
        """A new ExampleBlocks that makes the chunks' examples and passes them to `write`."""
        normalization = None if self.normalizer is None else self.normalizer.fst
        native = None if self.convert is not None else native_supervisor(normalization)
        return ExampleBlocks(native, JobKind.PIECES, self.compress, write)

    def add(self, utterance: UtteranceData, blocks: ExampleBlocks) -> bool:
        """Add an utterance's chunks to `blocks`; returns whether any chunk makes an example."""
        num_rows, num_cols = utterance.features.shape
        num_frames = min(num_rows, utterance.num_output * self._factor)
        chunks = self.splitter.chunks(utterance.name, num_frames)
        num_errors = blocks.num_errors
        for chunk in chunks:
            plan: ExamplePlan | Callable[[], ExamplePlan]
            plan = partial(self._plan, chunk, utterance, num_frames)
            if blocks.native and utterance.acceptor is not None:
                plan = plan()  # in the order of the utterances, like the draws of the splitter
            blocks.accept(
                Waiting(
                    self._key(utterance.name, chunk),
                    utterance.name,
                    utterance.acceptor,
                    Job(0, *self._frames_of(chunk), utterance.num_output),
                    utterance.weight,
                    utterance.label_dim,
                    4 * (chunk.left_context + chunk.num_frames + chunk.right_context) * num_cols,
                    plan,
                    partial(self._piece, utterance, chunk),
                )
            )
        return blocks.num_errors - num_errors < len(chunks)

    def _frames_of(self, chunk: Chunk) -> tuple[int, int]:
        """(first output frame, number of output frames) of a chunk."""
        return chunk.first_frame // self._factor, chunk.num_frames // self._factor

    def _plan(self, chunk: Chunk, utterance: UtteranceData, num_frames: int) -> ExamplePlan:
        """A chunk's features, weights, and i-vector (drawn); the utterance has `num_frames`."""
        draws.rand_int(0, 5)  # Kaldi draws this number too, and later draws depend on it.
        start = chunk.first_frame - chunk.left_context
        num_rows = chunk.left_context + chunk.num_frames + chunk.right_context
        ivector = None
        if self.ivectors is not None and utterance.ivectors is not None:
            ivector = self.ivectors.draw(utterance.ivectors, start, num_frames)
        weights = self._weights(chunk, utterance.deriv_weights)
        return ExamplePlan(
            *(utterance.features, start, num_rows, chunk.left_context, ivector),
            *(self._factor, weights),
        )

    def _weights(self, chunk: Chunk, given: NDArray[np.float32] | None) -> NDArray[np.float32]:
        if given is None:
            return chunk.output_weights
        first, size = self._frames_of(chunk)
        weights = np.zeros(size, np.float32)
        there = given[first : first + size]
        weights[: len(there)] = there
        return weights * chunk.output_weights

    def _key(self, utterance: str, chunk: Chunk) -> str:
        if not self.long_key:
            return f"{utterance}-{chunk.first_frame}"
        return (
            f"{utterance}-{chunk.first_frame}-{chunk.left_context}-{chunk.num_frames}-"
            f"{chunk.right_context}-v1"
        )

    def _piece(self, utterance: UtteranceData, chunk: Chunk) -> Supervision | None:
        """The supervision of a chunk, cut in Python; None, after a warning, if unusable."""
        with naming(f"utterance '{utterance.name}'"):
            piece: Supervision | None = utterance.cutter.cut(*self._frames_of(chunk))
            if self.convert is not None and piece is not None:
                piece = self.convert(piece)
            if piece is None or self.normalizer is None:
                return piece
            normalized = self.normalizer.normalized(piece)
        if normalized is None:
            log.warning(
                f"For utterance {utterance.name}, feature frames {chunk.first_frame} to "
                f"{chunk.first_frame + chunk.num_frames}, {NO_SHARED_PATH}"
            )
        return normalized or piece


@dataclass(frozen=True, eq=False)
class UtteranceData:
    """The data of an utterance from which its examples are made.

    `deriv_weights` has one per output frame (None: 1), `ivectors` a row per i-vector period.
    """

    name: str
    features: GeneralMatrix
    supervision: Supervision | EncodedSupervision
    deriv_weights: NDArray[np.float32] | None = None
    ivectors: NDArray[np.float32] | None = None

    @property
    def num_output(self) -> int:
        """The number of frames of the supervision."""
        return self._given("frames_per_sequence")

    @property
    def label_dim(self) -> int:
        """The largest label of the supervision."""
        return self._given("label_dim")

    def _given(self, name: str) -> int:
        given = self.supervision
        return (
            given.layout.values[name] if isinstance(given, EncodedRecord) else getattr(given, name)
        )

    @property
    def weight(self) -> float:
        """The weight of the supervision."""
        given = self.supervision
        return supervision_weight(given) if isinstance(given, EncodedRecord) else given.weight

    @cached_property
    def acceptor(self) -> bytes | None:
        """The bytes of the supervision's acceptor; None if it is decoded or cannot be cut."""
        given = self.supervision
        can_be_cut = not self._given("is_e2e") and self._given("num_sequences") == 1
        return given.hole(ACCEPTOR) if isinstance(given, EncodedRecord) and can_be_cut else None

    @cached_property
    def cutter(self) -> SupervisionCutter:
        """A cutter of the supervision; DataError if it is end-to-end or of several sequences."""
        given = self.supervision
        return SupervisionCutter(given.whole() if isinstance(given, EncodedRecord) else given)


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
    blocks = maker.blocks(write)
    for name, matrix in features:
        utterance = find(name, matrix)
        try:
            check_finite(f"features of utterance '{name}'", matrix)
        except NotFiniteError as error:
            log.skipped(error)
            utterance = None
        if utterance is None or not maker.lengths_match(utterance):
            num_errors += 1
        else:
            num_errors += not maker.add(utterance, blocks)
    blocks.finish()
    if num_errors:
        log.warning(f"{num_errors} utterances had errors and could not be processed.")
