"""The structure of a convolution over time and height: filters, heights and patch offsets.

Kaldi's ConvolutionModel (convolution.{h,cc}). Time is the `t` of an Index; the columns of a frame
are height * num_filters, filters innermost. The patch is a list of (time, height) offsets; heights
outside the image read as zero (padding), and so do times that are not `required_time_offsets`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from nnet3tools.nnet.components.common import read_field, require, write_field
from nnet3tools.nnet.indexes import IntArray

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["ConvolutionModel"]

_SIZES = (
    ("<NumFiltersIn>", "num_filters_in"),
    ("<NumFiltersOut>", "num_filters_out"),
    ("<HeightIn>", "height_in"),
    ("<HeightOut>", "height_out"),
    ("<HeightSubsampleOut>", "height_subsample_out"),
)


@dataclass(frozen=True)
class ConvolutionModel:
    """What is convolved with what; the parameters are elsewhere, (num_filters_out, param_cols)."""

    num_filters_in: int
    num_filters_out: int
    height_in: int
    height_out: int
    height_subsample_out: int
    """Output height h is centred on input height h * height_subsample_out."""
    offsets: IntArray
    """(K, 2) time and height offsets of the patch, sorted, no two the same."""
    required_time_offsets: tuple[int, ...]
    """Sorted; an output can be computed where the inputs at these exist."""

    @property
    def input_dim(self) -> int:
        """Columns of an input frame."""
        return self.num_filters_in * self.height_in

    @property
    def output_dim(self) -> int:
        """Columns of an output frame."""
        return self.num_filters_out * self.height_out

    @property
    def param_cols(self) -> int:
        """Columns of the parameter matrix: one block of num_filters_in for each offset."""
        return self.num_filters_in * len(self.offsets)

    @property
    def time_offsets(self) -> IntArray:
        """The distinct time offsets, sorted."""
        return np.unique(self.offsets[:, 0])

    def input_heights(self) -> IntArray:
        """Input height of output height h at offset k, (height_out, K); it may lie outside."""
        centres = np.arange(self.height_out, dtype=np.int32) * np.int32(self.height_subsample_out)
        return centres[:, None] + self.offsets[None, :, 1]

    # -- checks

    def problem(self) -> str | None:
        """Why this is no sensible convolution, in words, or None."""
        for token, name in _SIZES:
            if getattr(self, name) <= 0:
                return f"{token[1:-1]} must be positive, found {getattr(self, name)}"
        if len(self.offsets) == 0 or not self.required_time_offsets:
            return "there are no offsets, or no required time offsets"
        if len(np.unique(self.offsets, axis=0)) != len(self.offsets):
            return "an offset is repeated"
        if missing := set(self.required_time_offsets) - set(self.time_offsets.tolist()):
            return f"required time offsets {sorted(missing)} are not among the time offsets"
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

    def unused_heights(self) -> IntArray:
        """Input heights that no output height uses."""
        return np.setdiff1d(np.arange(self.height_in), self.input_heights())

    # -- creation and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        """Take the structure from a config line; ConfigError if it makes no sense."""
        sizes = {name: line.get_int(name.replace("_", "-")) for _, name in _SIZES[:4]}
        required = line.get_int_list("required-time-offsets", None)
        sizes["height_subsample_out"] = line.get_int("height-subsample-out", 1)
        if sizes["height_subsample_out"] <= 0:
            raise line.error("height-subsample-out must be positive")
        offsets = _offsets_from_config(line)
        if required is None:
            required = np.unique(offsets[:, 0]).tolist()
        elif not required or sorted(set(required)) != required:
            raise line.error("required-time-offsets must be a sorted list of different integers")
        model = cls(**sizes, offsets=offsets, required_time_offsets=tuple(required))
        if (problem := model.problem()) is not None:
            raise line.error(problem)
        return model

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read from `<ConvolutionModel>` to its closing token."""
        reader.expect_token("<ConvolutionModel>")
        sizes = {name: read_field(reader, token, reader.read_int32) for token, name in _SIZES}
        offsets = read_field(reader, "<Offsets>", reader.read_int_pairs)
        required = read_field(reader, "<RequiredTimeOffsets>", reader.read_int32_vector)
        reader.expect_token("</ConvolutionModel>")
        in_order = np.array_equal(offsets, np.unique(offsets, axis=0)) if len(offsets) else True
        require(reader, in_order, "the <Offsets> of a convolution are not sorted")
        times = tuple(np.unique(required).tolist())
        model = cls(**sizes, offsets=offsets, required_time_offsets=times)
        problem = model.problem()
        require(reader, problem is None, f"convolution: {problem}")
        return model

    def write(self, writer: Writer) -> None:
        """Write in Kaldi's form."""
        writer.write_token("<ConvolutionModel>")
        for token, name in _SIZES:
            write_field(writer, token, getattr(self, name))
        writer.write_token("<Offsets>")
        writer.write_int_pairs(self.offsets)
        writer.write_token("<RequiredTimeOffsets>")
        writer.write_int32_vector(self.required_time_offsets)
        writer.write_token("</ConvolutionModel>")

    def info(self) -> str:
        """The part of nnet3-info's line about the structure."""
        offsets = " ".join(f"{time},{height}" for time, height in self.offsets)
        return (
            f"num-filters-in={self.num_filters_in}, num-filters-out={self.num_filters_out}"
            f", height-in={self.height_in}, height-out={self.height_out}"
            f", height-subsample-out={self.height_subsample_out}"
            f", {{time,height}}-offsets=[{offsets}]"
            f", required-time-offsets=[{','.join(map(str, self.required_time_offsets))}]"
            f", input-dim={self.input_dim}, output-dim={self.output_dim}"
        )


def _offsets_from_config(line: ConfigLine) -> IntArray:
    """Patch offsets (K, 2), from offsets=t,h;t,h... or the product of time- and height-offsets."""
    text = line.get_string("offsets", None)
    if text is not None:
        try:
            pairs = [[int(part) for part in pair.split(",")] for pair in text.split(";")]
        except ValueError:
            pairs = []
        if not pairs or any(len(pair) != 2 for pair in pairs):
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
