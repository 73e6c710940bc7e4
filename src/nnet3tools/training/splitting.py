"""Splits utterances into chunks of frames (Kaldi's nnet-example-utils.h).

A *split* is a sorted list of chunk sizes: any number of the principal size and at most two of the
alternative sizes. One is drawn at random for each utterance from those whose total duration comes
nearest to its length, and gaps or overlaps make up the difference.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import EmptyError, OptionError, check_num_frames
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.number_text import parse_counts
from nnet3tools.options import OptionGroup, option
from nnet3tools.training.std_order import MersenneTwister, shuffle

Split = tuple[int, ...]

_COST_MARGIN = np.float32(1.9999)
"""Splits within this much of the best cost may be drawn; just below 2, so that ties stay few."""


_MAX_CHUNKS = 20_000_000
"""Bound on twice the chunks in all splits: 80 MB, and seconds where chunks overlap."""


class ExampleGenerationOptions(OptionGroup):
    """Options of the programs that cut utterances into examples."""

    left_context: int = option(
        0, "Number of frames of left context of input features that are added to each example"
    )
    right_context: int = option(
        0, "Number of frames of right context of input features that are added to each example"
    )
    left_context_initial: int = option(
        -1, "Left context of the first example of an utterance (if <0, --left-context)"
    )
    right_context_final: int = option(
        -1, "Right context of the last example of an utterance (if <0, --right-context)"
    )
    num_frames: str = option(
        "1",
        "Number of frames with labels in each example: an integer, or a principal number and "
        "alternatives that are used at most twice an utterance (e.g. 40,25,50); rounded up to "
        "multiples of --frame-subsampling-factor. -1 means one example an utterance.",
    )
    num_frames_overlap: int = option(
        0, "Number of frames of overlap between adjacent examples of the principal size (advisory)"
    )
    frame_subsampling_factor: int = option(
        1, "Frames of input per frame of output, if the output labels have a lower frame rate"
    )

    @property
    def contexts_at_ends(self) -> tuple[int, int]:
        """The left context of an utterance's first chunk and the right context of its last one."""
        left, right = self.left_context_initial, self.right_context_final
        return (
            left if left >= 0 else self.left_context,
            right if right >= 0 else self.right_context,
        )

    def chunk_sizes(self) -> Split:
        """The allowed chunk sizes, the principal one first; empty if utterances stay whole."""
        if self.frame_subsampling_factor < 1:
            raise OptionError(
                f"invalid --frame-subsampling-factor={self.frame_subsampling_factor}: "
                "expected at least 1"
            )
        contexts = "left_context", "right_context", "left_context_initial", "right_context_final"
        for name in (*contexts, "frame_subsampling_factor"):
            check_num_frames(name.replace("_", "-"), getattr(self, name))
        if self.num_frames == "-1":
            return ()
        given = parse_counts(self.num_frames.split(",")) or [0]
        if min(given) <= 0:
            raise OptionError(
                f"invalid --num-frames={self.num_frames}: expected positive integers, "
                "comma-separated, or -1"
            )
        check_num_frames("num-frames", max(given))
        factor = self.frame_subsampling_factor
        sizes = tuple(-(-size // factor) * factor for size in given)
        if list(sizes) != given:
            log.log(
                f"Rounding up --num-frames={self.num_frames} to multiples of "
                f"--frame-subsampling-factor={factor}, to: {','.join(map(str, sizes))}"
            )
        if not self.num_frames_overlap < sizes[0]:
            raise OptionError(
                f"--num-frames-overlap={self.num_frames_overlap} must be less than the principal "
                f"--num-frames={sizes[0]}"
            )
        return sizes


class Chunk(NamedTuple):
    """The position of one example in its utterance, in input frames.

    `output_weights` has for each output frame 1 / (number of chunks with the frame).
    """

    first_frame: int
    num_frames: int
    left_context: int
    right_context: int
    output_weights: NDArray[np.float32]


ChunkShape = tuple[int, int, int]
"""(Frames of a chunk, frames of its left context, frames of its right context)."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """All chunks of one utterance; iteration yields each as a `Chunk`.

    Every `factor`-th input frame is an output frame. `first_frames` has the number of each chunk's
    first input frame, `frame_weights` the weight of each output frame of the utterance.
    """

    first_frames: NDArray[np.intp]
    shapes: list[ChunkShape]
    frame_weights: NDArray[np.float32]
    factor: int

    def __len__(self) -> int:
        """Number of chunks."""
        return len(self.shapes)

    def __iter__(self) -> Iterator[Chunk]:
        for first, shape in zip(self.first_frames.tolist(), self.shapes, strict=True):
            begin = first // self.factor
            weights = self.frame_weights[begin : begin + shape[0] // self.factor]
            yield Chunk(first, *shape, weights)

    def places(self) -> dict[ChunkShape, list[int]]:
        """The positions of the chunks of each shape."""
        shapes = dict.fromkeys(self.shapes)
        return {shape: [i for i, one in enumerate(self.shapes) if one == shape] for shape in shapes}


class UtteranceSplitter:
    """Splits utterances into chunks, partly at random, and counts the chunks.

    Kaldi shuffles the gaps between chunks with a generator seeded by the hardware; here it has a
    fixed seed, so that the same features give the same examples.
    """

    def __init__(self, options: ExampleGenerationOptions) -> None:
        self.options = options
        self._sizes = options.chunk_sizes()
        self._splits = self._all_splits() if self._sizes else []
        self._durations = np.array([self._duration(split) for split in self._splits], np.float32)
        self._longest = np.array([max(split) for split in self._splits])
        self._splits_for_length: dict[int, list[Split]] = {}
        self._gap_generator = MersenneTwister(0)
        self._num_utterances = self._input_frames = self._overlap_frames = 0
        self._count_of_size = Counter[int]()

    @property
    def total_frames(self) -> int:
        """The number of frames in all chunks so far."""
        return sum(size * count for size, count in self._count_of_size.items())

    # -- which chunk sizes

    @property
    def _step(self) -> int:
        """The number of frames that one more chunk of the principal size covers."""
        return self._sizes[0] - self.options.num_frames_overlap

    def _duration(self, split: Split) -> np.float32:
        """How many frames chunks of the sizes `split` cover with the configured overlap."""
        duration = np.float32(sum(split))
        if self.options.num_frames_overlap == 0:
            return duration
        proportion = np.float32(self.options.num_frames_overlap) / np.float32(self._sizes[0])
        for a, b in itertools.pairwise(split):
            duration -= proportion * np.float32(min(a, b))
        return duration

    def _all_splits(self) -> list[Split]:
        """All splits (sorted tuples of chunk sizes) of up to 2 * (first + largest size) frames."""
        principal, others = self._sizes[0], self._sizes[1:]
        ceiling = 2 * max(self._sizes) + 2 * principal
        beginnings = [(), *((a,) for a in others), *((a, b) for a in others for b in others)]
        if len(beginnings) * (ceiling // self._step) ** 2 > _MAX_CHUNKS:
            raise OptionError(
                f"--num-frames={self.options.num_frames}: the first number is too small beside the "
                f"largest, {max(self._sizes)}: there are too many ways to split an utterance"
            )
        splits: set[Split] = set()
        for split in beginnings:
            while self._duration(split) <= ceiling:
                splits.add(split)
                split = tuple(sorted((*split, principal)))
        splits.discard(())
        return sorted(splits)

    def _splits_of(self, length: int) -> list[Split]:
        """The tuples of chunk sizes that fit `length` frames best; empty if `length` is too small.

        A gap costs twice as much as an overlap of the same length, since it loses data.
        """
        if (known := self._splits_for_length.get(length)) is not None:
            return known
        over = self._durations - np.float32(length)
        costs = np.where(over > 0, over, np.float32(2.0) * -over)
        costs[length < self._longest] = np.inf
        best = costs.min()
        allowed = (costs < best + _COST_MARGIN) & np.isfinite(best)
        found = [self._splits[i] for i in np.flatnonzero(allowed)]
        return self._splits_for_length.setdefault(length, found)

    def _draw_sizes(self, length: int) -> list[int]:
        """Random chunk sizes in time order for an utterance of `length` frames; [] if too short."""
        step = self._step
        most = 2 * max(self._sizes) + self._sizes[0]
        repeats = max(0, -(-(length - most) // step))
        possible = self._splits_of(length - repeats * step)
        if not possible:
            return []
        drawn = possible[tensor.random.rand_int(0, len(possible) - 1)]
        return sorted(
            (*drawn, *[self._sizes[0]] * repeats), reverse=tensor.random.rand_int(0, 1) == 0
        )

    # -- where the chunks are

    def _gaps(self, length: int, sizes: list[int]) -> list[int]:
        """The gap before each chunk, in frames from the end of the previous chunk, or from frame 0.

        If chunks of the `sizes` (frames) fit into `length` frames, the frames left over are divided
        evenly among these gaps and one at the end; gaps drawn at random get the remainder.
        Otherwise the first gap is 0 and the others are negative: overlaps, in proportion to the
        smaller of the two chunks. Gaps are multiples of the frame subsampling factor.
        """
        factor = self.options.frame_subsampling_factor
        length, sizes = -(-length // factor), [size // factor for size in sizes]
        total_gap = length - sum(sizes)
        if total_gap < 0:
            gaps = [0, *self._share_overlap(-total_gap, sizes)]
        else:
            common, remainder = divmod(total_gap, len(sizes) + 1)
            gaps = [common + 1] * remainder + [common] * (len(sizes) + 1 - remainder)
            shuffle(gaps, self._gap_generator)
        return [gap * factor for gap in gaps[: len(sizes)]]

    @staticmethod
    def _share_overlap(overlap: int, sizes: list[int]) -> list[int]:
        """The gap between each two successive chunks of `sizes`: at most 0, in total -`overlap`."""
        magnitudes = np.minimum(sizes[:-1], sizes[1:]).astype(np.float32)
        shares = np.float32(overlap) * magnitudes / np.float32(magnitudes.sum())
        shares = shares.astype(np.int32)
        shares[: overlap - int(shares.sum())] += 1
        return [-int(share) for share in shares]

    def chunks(self, utterance: str, length: int) -> Chunks:
        """The chunks of an utterance of `length` frames; none, with a warning, if too short."""
        chunks = self.split(length)
        if not chunks:
            log.warning(
                f"Not producing egs for utterance {utterance} because it is too short: {length} "
                "frames."
            )
        return chunks

    def split(self, length: int) -> Chunks:
        """The chunks of an utterance of `length` input frames; none if it is too short."""
        o = self.options
        sizes = self._draw_sizes(length) if self._sizes else [length]
        firsts = np.zeros(len(sizes), int)
        if sizes and self._sizes:
            firsts = np.cumsum(self._gaps(length, sizes)) + np.cumsum([0, *sizes[:-1]])
        initial, final = o.contexts_at_ends
        lefts = [initial, *[o.left_context] * len(sizes)]
        rights = [*[o.right_context] * (len(sizes) - 1), final]
        self._count(length, firsts, sizes)
        weights = self._frame_weights(length, firsts, sizes, o.frame_subsampling_factor)
        shapes = list(zip(sizes, lefts, rights, strict=False))
        return Chunks(firsts, shapes, weights, o.frame_subsampling_factor)

    @staticmethod
    def _frame_weights(
        length: int, firsts: NDArray[np.intp], sizes: list[int], factor: int
    ) -> NDArray[np.float32]:
        begins, ends = firsts // factor, (firsts + sizes).astype(int) // factor
        num = -(-length // factor) + 1
        steps = np.bincount(begins, minlength=num) - np.bincount(ends, minlength=num)
        return (1.0 / np.maximum(steps.cumsum(), 1)).astype(np.float32)

    # -- checks and statistics

    def lengths_match(
        self, utterance: str, length: int, supervision_length: int, tolerance: int = 0
    ) -> bool:
        """Whether `supervision_length` fits `length` input frames, +- `tolerance`; warns if not."""
        factor = self.options.frame_subsampling_factor
        expected = -(-length // factor)
        if abs(supervision_length - expected) <= tolerance:
            return True
        where = "Supervision does not have expected length for utterance"
        if factor == 1:
            what = f"expected length = {length}, got {supervision_length}"
        else:
            what = (
                f"expected length = ({length} + {factor} - 1) / {factor} = {expected}, got: "
                f"{supervision_length} (note: --frame-subsampling-factor={factor})"
            )
        log.warning(f"{where} {utterance}: {what}")
        return False

    def _count(self, length: int, firsts: np.ndarray, sizes: list[int]) -> None:
        self._num_utterances += 1
        self._input_frames += length
        self._count_of_size.update(sizes)
        self._overlap_frames += int(np.maximum(0, (firsts + sizes)[:-1] - firsts[1:]).sum())

    def print_stats(self) -> None:
        """Log the numbers of utterances and chunks, and the lengths of chunks."""
        num_chunks, frames = sum(self._count_of_size.values()), self.total_frames
        log.log(
            f"Split {self._num_utterances} utts, with total length {self._input_frames} frames "
            f"({self._input_frames / 360000.0:g} hours assuming 100 frames per second) into "
            f"{num_chunks} chunks."
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            average = np.float32(np.float64(frames) / num_chunks)
            overlap = np.float32(np.float64(self._overlap_frames) * 100.0 / self._input_frames)
            output = np.float32(np.float64(frames) * 100.0 / self._input_frames)
        log.log(
            f"Average chunk length was {average:g} frames; overlap between adjacent chunks was "
            f"{overlap:g}% of input length; length of output was {output:g}% of input length "
            f"(minus overlap = {output - overlap:g}%)."
        )
        if len(self._count_of_size) > 1:
            shares = ", ".join(
                f"{size} = {100.0 * size * count / frames:.4g}%"
                for size, count in sorted(self._count_of_size.items())
            )
            log.log(f"Output frames are distributed among chunk-sizes as follows: {shares}")

    def check_any(self, features: str) -> None:
        """Raise EmptyError, naming the rspecifier `features`, if no chunk was made."""
        if self.total_frames == 0:
            raise EmptyError(f"{features}: no examples could be made of it")
