"""SpecAugmentTimeMaskComponent: zeroes random ranges of frames of each sequence.

Kaldi's nnet-general-component.cc. The forward pass draws the mask, which is the memo. In test mode
the component does nothing.
"""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
    RandomComponent,
)
from nnet3tools.nnet.components.fields import Float, Int, IntVector, Mark
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.indexes import IndexArray, IntArray
from nnet3tools.tensor.operators.gather import add_gathered
from nnet3tools.tensor.operators.order import cumulative_sum

_multiply = tensor.element("_1 = _1 * _2")
# converts random numbers in (0, 1] to lengths of 1 to _2 frames, limited to _3
_to_frames = tensor.element("_1 = min(floor(_1 * _2) + 1, _3)")
_drop_some = tensor.element("_1 = where(_2 >= _3, 0, _1)")
_at_most = tensor.element("_1 = int32(min(_2, _3))")
_is_even = tensor.element("_1 = where(floor(_2 / 2) * 2 == _2, 1, 0)")


class _Sequences(IntVector):
    """Field for `rows` and `offsets` of TimeMaskIndexes; files have a list of rows per sequence."""

    def read(self, reader: Reader, owner: TimeMaskIndexes) -> None:
        reader.expect_token("<Indexes>")
        rows = [reader.read_int32_vector() for _ in range(reader.read_int32())]
        owner.rows = np.concatenate([np.empty(0, np.int32), *rows])
        owner.offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)

    def write(self, writer: Writer, owner: TimeMaskIndexes) -> None:
        writer.write_token("<Indexes>").write_int32(owner.num_sequences)
        for rows in np.split(owner.rows, owner.offsets[1:-1]):
            writer.write_int32_vector(rows)


@register_precomputed
class TimeMaskIndexes(PrecomputedIndexes):
    """Precomputed indexes: the rows of each sequence in order of time, sequence after sequence.

    Sequence s has rows[offsets[s]:offsets[s + 1]].
    """

    type_name: ClassVar[str] = "SpecAugmentTimeMaskComponentPrecomputedIndexes"

    rows = _Sequences("<Indexes>")
    offsets = IntVector()

    def problem(self) -> str | None:
        good = np.array_equal(np.sort(self.rows), np.arange(len(self.rows)))
        return None if good else "must have each row once"

    @property
    def num_sequences(self) -> int:
        """The number of sequences among the rows."""
        return len(self.offsets) - 1

    @functools.cached_property
    def longest(self) -> int:
        """Number of frames of the longest sequence."""
        return int(np.diff(self.offsets).max(initial=0))

    @functools.cached_property
    def places(self) -> IntArray:
        """By row: sequence * (`longest` + 1) + frame, with frames counted in each sequence."""
        sequence = np.repeat(np.arange(self.num_sequences), np.diff(self.offsets))
        frame = np.arange(len(self.rows)) - self.offsets[sequence]
        places = np.empty(len(self.rows), np.int32)
        places[self.rows] = sequence * (self.longest + 1) + frame
        places.flags.writeable = False
        return places

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        return len(self.rows) == num_inputs == num_outputs


@register
class SpecAugmentTimeMaskComponent(RandomComponent):
    """Copy the input and set ranges of frames, about `zeroed_proportion` of all, to zero.

    Each zeroed range has up to `time_mask_max_frames` frames.
    """

    FORMULA = "y(t) = m(t) x(t); m is 0 in random ranges of frames, else 1"
    PROPERTIES = Properties.IN_PLACE | Properties.USES_MEMO
    INFO = "dim zeroed_proportion time_mask_max_frames"

    dim = Int("<Dim>", "dim", positive=True)
    zeroed_proportion = Float("<ZeroedProportion>", "zeroed-proportion", 0.25)
    time_mask_max_frames = Int("<TimeMaskMaxFrames>", "time-mask-max-frames", 10)
    test_mode = Mark("<TestMode>")

    @property
    def max_kept_frames(self) -> int:
        """Longest allowed range of kept frames; it makes the zeroed proportion right on average."""
        z = np.float32(self.zeroed_proportion)
        if z <= 0.0:
            return 1
        with np.errstate(over="ignore"):
            return int(min(np.float32(self.time_mask_max_frames) * (1 - z) / z, np.float32(1e9)))

    def problem(self) -> str | None:
        if not 0.0 <= self.zeroed_proportion < 1.0:
            return f"zeroed-proportion must be in [0, 1), found {self.zeroed_proportion:g}"
        if self.time_mask_max_frames < 1 or self.max_kept_frames < 1:
            return (
                f"time-mask-max-frames {self.time_mask_max_frames} is too small for "
                f"zeroed-proportion {self.zeroed_proportion:g}"
            )
        return None

    def init_from_config(self, line: ConfigLine) -> None:
        if self.time_mask_max_frames <= 1:
            raise line.error("time-mask-max-frames must be above 1")

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        """Apply a new mask. The memo is the mask (rows, 1), or None if nothing is zeroed."""
        assert isinstance(indexes, TimeMaskIndexes)
        if out_value is not in_value:
            tensor.copy(out_value, in_value)
        if self.test_mode or self.zeroed_proportion == 0.0:
            return None
        if len(indexes.rows) != out_value.shape[0]:
            raise ProgramError(f"time mask for {len(indexes.rows)} rows, not {out_value.shape[0]}")
        mask = tensor.persistent_array((out_value.shape[0], 1), like=out_value)
        self._draw_mask(mask, indexes)
        _multiply(out_value, mask)
        return mask

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not args.out_deriv:
            tensor.copy(args.in_deriv, args.out_deriv)
        if args.memo is not None:
            _multiply(args.in_deriv, args.memo)

    def _draw_mask(self, mask: Array, indexes: TimeMaskIndexes) -> None:
        """Set mask (rows, 1) to 1 in kept and 0 in zeroed ranges of frames, alternating, at random.

        With probability `zeroed_proportion` a sequence starts with a kept range, as in Kaldi.
        """
        sequences, longest = indexes.num_sequences, indexes.longest
        # A range has at least one frame, so `longest` + 1 ranges cover any sequence.
        shape = (sequences, longest + 1)
        with (
            tensor.scratch((sequences, longest + 2), like=mask) as draws,
            tensor.scratch(shape, like=mask) as ends,
            tensor.scratch(shape, like=mask, dtype=np.int32) as places,
            tensor.scratch(shape, like=mask) as ended,
        ):
            tensor.random.uniform(draws)
            starts, stretches = draws[:, :1], draws[:, 1:]
            _to_frames(stretches[:, 0::2], self.max_kept_frames, longest + 1)
            _to_frames(stretches[:, 1::2], self.time_mask_max_frames, longest + 1)
            _drop_some(stretches[:, :1], starts, self.zeroed_proportion)
            cumulative_sum(ends, stretches, 1, False, False)
            _at_most(places, ends, longest)
            # Number of ranges that have ended at each frame: even in a kept range.
            tensor.fill(ends, 1.0)
            tensor.fill(ended, 0.0)
            add_gathered(ended, ends, places, 1)
            cumulative_sum(ends, ended, 1, False, False)
            _is_even(ended, ends)
            tensor.copy_rows(mask, ended.reshape(-1, 1), indexes.places)

    # -- indexes

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> TimeMaskIndexes:
        if not np.array_equal(input_indexes, output_indexes):
            raise ProgramError(f"{self.type_name} given outputs other than its inputs")
        n, t = input_indexes[:, 0], input_indexes[:, 1]
        rows = np.lexsort((t, n)).astype(np.int32)
        starts = np.flatnonzero(np.diff(n[rows], prepend=-1))
        offsets = np.append(starts, len(rows)).astype(np.int32)
        return TimeMaskIndexes(rows=rows, offsets=offsets)
