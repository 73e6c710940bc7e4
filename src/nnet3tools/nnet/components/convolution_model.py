"""The structure of a convolution over time and height: filters, heights and patch offsets.

Kaldi's ConvolutionModel (convolution.{h,cc}). Time is the `t` of an Index. A frame has height *
num_filters columns, filters innermost. A patch is a list of (time, height) offsets. Heights outside
the image read as zero (padding), as do missing times that are not in `required_time_offsets`.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.declared import Declared
from nnet3tools.nnet.components.fields import Int, IntPairs, IntVector
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.indexes import IntArray
from nnet3tools.number_text import parse_int


class _Times(IntVector):
    """Field for a set of integers; files may have them in any order."""

    def read_value(self, reader: Reader) -> IntArray:
        return np.unique(super().read_value(reader))


_MAX_HEIGHT = 1 << 20
"""Limit on heights, so that a damaged file cannot exhaust memory with tables of heights."""


class ConvolutionModel(Declared):
    """The geometry of a time-height convolution: numbers of filters, heights, patch offsets."""

    KEYS = "[offsets] [time-offsets] [height-offsets] required-time-offsets=time-offsets"
    type_name = "ConvolutionModel"

    num_filters_in = Int("<NumFiltersIn>", "num-filters-in", positive=True)
    num_filters_out = Int("<NumFiltersOut>", "num-filters-out", positive=True)
    height_in = Int("<HeightIn>", "height-in", positive=True)
    height_out = Int("<HeightOut>", "height-out", positive=True)
    height_subsample_out = Int("<HeightSubsampleOut>", "height-subsample-out", 1, positive=True)
    """Output height h is centered on input height h * height_subsample_out."""
    offsets = IntPairs("<Offsets>")
    """(K, 2): time and height offsets of the patch, sorted and distinct."""
    required_time_offsets = _Times(
        "<RequiredTimeOffsets>", "required-time-offsets", lambda m: m.time_offsets
    )
    """Sorted; an output is computable if the inputs at these offsets exist."""

    @property
    def input_dim(self) -> int:
        """Number of columns of an input frame: heights times filters."""
        return self.num_filters_in * self.height_in

    @property
    def output_dim(self) -> int:
        """Number of columns of an output frame: heights times filters."""
        return self.num_filters_out * self.height_out

    @property
    def param_cols(self) -> int:
        """Number of columns of the parameter matrix: num_filters_in for each offset."""
        return self.num_filters_in * len(self.offsets)

    @property
    def time_offsets(self) -> IntArray:
        """The distinct time offsets of the patch, sorted."""
        return np.unique(self.offsets[:, 0])

    def input_heights(self) -> IntArray:
        """Input height for each output height and offset, (height_out, K); may be out of range."""
        centres = np.arange(self.height_out, dtype=np.int32) * np.int32(self.height_subsample_out)
        return centres[:, None] + self.offsets[None, :, 1]

    # -- checks

    def problem(self) -> str | None:
        required = self.required_time_offsets
        if len(self.offsets) == 0 or len(required) == 0:
            return "there are no offsets, or no required time offsets"
        if not np.array_equal(self.offsets, np.unique(self.offsets, axis=0)):
            return "the offsets of a convolution are not sorted, or one is repeated"
        if not np.array_equal(required, np.unique(required)):
            return "required-time-offsets must be a sorted list of different integers"
        if len(missing := np.setdiff1d(required, self.time_offsets)):
            return f"required time offsets {missing.tolist()} are not among the time offsets"
        return self._problem_of_heights()

    def _problem_of_heights(self) -> str | None:
        if (tallest := max(self.height_in, self.height_out)) > _MAX_HEIGHT:
            return f"heights may be up to {_MAX_HEIGHT}, found {tallest}"
        heights = self.input_heights()
        inside = (heights >= 0) & (heights < self.height_in)
        if not (used := inside.any(axis=0)).all():
            time, height = self.offsets[int(np.flatnonzero(~used)[0])]
            return (
                f"offset (time {time}, height {height}) is never inside the input, which has "
                f"{self.height_in} heights for {self.height_out} output heights with "
                f"height-subsample-out={self.height_subsample_out}"
            )
        required = np.isin(self.offsets[:, 0], self.required_time_offsets)
        if not (fed := inside[:, required].any(axis=1)).all():
            return (
                f"output height {int(np.flatnonzero(~fed)[0])} gets no input at the required time "
                f"offsets: the input has {self.height_in} heights"
            )
        return None

    # -- creation and info lines

    def init_from_config(self, line: ConfigLine) -> None:
        self.offsets = _offsets_from_config(line)

    def info(self) -> str:
        """The text about the convolution's geometry that nnet3-info prints."""
        offsets = " ".join(f"{time},{height}" for time, height in self.offsets)
        required = ",".join(map(str, self.required_time_offsets))
        sizes = "num_filters_in num_filters_out height_in height_out height_subsample_out"
        return (
            f"{self.info_of(sizes)}, {{time,height}}-offsets=[{offsets}]"
            f", required-time-offsets=[{required}], {self.info_of('input_dim output_dim')}"
        )


def _offsets_from_config(line: ConfigLine) -> IntArray:
    """Patch offsets (K, 2) from offsets=t,h;t,h..., or all pairs of time- and height-offsets."""
    if (text := line.get_string("offsets", None)) is not None:
        pairs = [[parse_int(part) for part in pair.split(",")] for pair in text.split(";")]
        if any(len(pair) != 2 or None in pair for pair in pairs):
            raise line.error(f"expected offsets=time,height;time,height..., found '{text}'")
        offsets = np.unique(np.array(pairs, np.int32), axis=0)
        if len(offsets) != len(pairs):
            raise line.error(f"an offset is repeated in offsets={text}")
        return offsets
    heights, times = (
        line.get_int_list("height-offsets", None),
        line.get_int_list("time-offsets", None),
    )
    if heights is None or times is None:
        raise line.error("expected either offsets=, or both height-offsets= and time-offsets=")
    for key, values in (("height-offsets", heights), ("time-offsets", times)):
        if not values or sorted(set(values)) != values:
            raise line.error(f"{key} must be a sorted list of different integers")
    grid = np.meshgrid(np.array(times, np.int32), np.array(heights, np.int32), indexing="ij")
    return np.stack([g.ravel() for g in grid], axis=1)
