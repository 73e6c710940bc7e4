"""A compiled convolution: a sequence of gathers of patches and matrix products.

Kaldi's ConvolutionComputation (convolution.{h,cc}), as stored in program files, and its
construction from a model and the times of rows. A step covers all height offsets at one time
offset: it gathers patches from rows shifted by `input_time_shift` times and multiplies them by a
block of the parameters. With subsampling in time, `r` input frames are viewed as one (see
`TimeGrid.reorder_t_in`), so a step may cover several of the model's time offsets.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import RequestError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.convolution_model import ConvolutionModel
from nnet3tools.nnet.components.declared import Declared
from nnet3tools.nnet.components.field import Field
from nnet3tools.nnet.components.fields import Int
from nnet3tools.nnet.components.regular_grid import TimeGrid, grid_of, indexes_on_grid
from nnet3tools.nnet.indexes import IndexArray, IntArray

_NAME = "TimeHeightConvolutionComponent"


@dataclass(frozen=True)
class ConvolutionStep:
    """Part of a convolution: gather patches of the input, multiply by some parameter columns.

    The step skips `input_time_shift` input times and multiplies by the parameter columns from
    `params_start_col` on. `height_map` has the input height of each position of the patches,
    grouped by output height; -1 stands for zeros.
    """

    input_time_shift: int
    params_start_col: int
    height_map: IntArray
    """Input height for each height of the patches, grouped by output height; -1 for zero."""

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether the step reads a contiguous range of input columns, in order."""
        return bool(self.height_map[0] >= 0 and (np.diff(self.height_map) == 1).all())

    def pieces(self, height_out: int) -> IntArray:
        """The height map as slices, (K, 4): one row for each of the K positions in a patch.

        A row is (first output height, end, first input height, input step); at other output
        heights the patch is zero. ValueError if the heights are not evenly spaced.
        """
        table = self.height_map.reshape(height_out, -1)
        valid = table >= 0
        start, count = valid.argmax(axis=0), valid.sum(axis=0)
        columns = np.arange(table.shape[1])
        first = table[start, columns]
        second = table[np.minimum(start + 1, height_out - 1), columns]
        step = np.where(count > 1, second - first, 1)
        expected = first + (np.arange(height_out)[:, None] - start) * step
        inside = (np.arange(height_out)[:, None] >= start) & (
            np.arange(height_out)[:, None] < start + count
        )
        if not np.array_equal(np.where(inside, expected, -1), table) or (step < 1).any():
            raise ValueError("heights are not evenly spaced")
        return np.stack([start, start + count, np.maximum(first, 0), step], axis=1).astype(np.int32)


class _Steps(Field[list[ConvolutionStep]]):
    """Field for a list of ConvolutionStep; files have <NumSteps> and the fields of each step."""

    def read_value(self, reader: Reader) -> list[ConvolutionStep]:
        return [self._read_step(reader) for _ in range(reader.read_int32())]

    def _read_step(self, reader: Reader) -> ConvolutionStep:
        shift = reader.expect_token("<TimeShift>").read_int32()
        start = reader.expect_token("<ParamsStartCol>").read_int32()
        reader.expect_token("<HeightMap>")
        return ConvolutionStep(shift, start, reader.read_int32_vector())

    def write_value(self, writer: Writer, value: list[ConvolutionStep]) -> None:
        writer.write_int32(len(value))
        for step in value:
            writer.write_token("<TimeShift>").write_int32(step.input_time_shift)
            writer.write_token("<ParamsStartCol>").write_int32(step.params_start_col)
            writer.write_token("<HeightMap>").write_int32_vector(step.height_map)

    def freeze(self, owner: ConvolutionComputation) -> None:
        for array in (*(step.height_map for step in owner.steps), *owner.pieces):
            array.flags.writeable = False


class ConvolutionComputation(Declared):
    """A compiled convolution: its sizes and the steps (ConvolutionStep) that compute it.

    With subsampling by r, `height_in` and `num_t_in` count frames that join r input frames.
    """

    type_name = "ConvComputation"
    HAS_SETTINGS = False

    num_filters_in = Int("<NumFiltersInOut>", positive=True)
    num_filters_out = Int("", positive=True)
    height_in = Int("<HeightInOut>", positive=True)
    height_out = Int("", positive=True)
    num_t_in = Int("<NumTInOut>")
    num_t_out = Int("", positive=True)
    num_images = Int("<NumImages>", positive=True)
    temp_rows = Int("<TempRowsCols>", default=0)
    """Output rows per block of work, chosen so that the patches fit max-memory-mb."""
    temp_cols = Int("", default=0)
    """Columns of the widest patches; 0, like temp_rows, if no step needs to gather."""
    steps = _Steps("<NumSteps>")

    def problem(self) -> str | None:
        extra = self.num_t_in - self.num_t_out
        if extra < 0 or not self.steps:
            return "there must be steps, and at least as many input times as output times"
        if not 0 <= self.temp_rows <= self.num_t_out * self.num_images:
            return f"bad number of temporary rows {self.temp_rows}"
        if self.temp_rows % self.num_images != 0:
            return f"{self.temp_rows} temporary rows are not whole times"
        for step in self.steps:
            heights = step.height_map
            if not 0 <= step.input_time_shift <= extra:
                return f"time shift {step.input_time_shift} is not in 0..{extra}"
            if step.params_start_col < 0 or step.params_start_col % self.num_filters_in != 0:
                return f"bad parameter column {step.params_start_col}"
            if len(heights) == 0 or len(heights) % self.height_out != 0:
                return f"{len(heights)} patch heights for {self.height_out} output heights"
            if heights.min() < -1 or heights.max() >= self.height_in or heights.max() < 0:
                return f"patch heights must be in -1..{self.height_in - 1}, not all -1"
        try:
            _ = self.pieces
        except ValueError as error:
            return str(error)
        cols = self.patch_cols()
        if self.temp_cols != cols or (self.temp_rows > 0) != (cols > 0):
            return f"bad temporary size {self.temp_rows} x {self.temp_cols}"
        return None

    def suits(self, model: ConvolutionModel) -> bool:
        """Whether this computation fits a model: sizes agree, parameter columns exist."""
        places = [len(step.height_map) // self.height_out for step in self.steps]
        ends = [
            step.params_start_col + self.num_filters_in * count
            for step, count in zip(self.steps, places, strict=True)
        ]
        return (
            (self.num_filters_in, self.num_filters_out, self.height_out)
            == (model.num_filters_in, model.num_filters_out, model.height_out)
            and self.height_in % model.height_in == 0
            and max(ends) <= model.param_cols
        )

    @cached_property
    def pieces(self) -> tuple[IntArray, ...]:
        """For each step, its height map as slices, (positions of a patch, 4): `step.pieces()`."""
        return tuple(step.pieces(self.height_out) for step in self.steps)

    def needs_gather(self, step: ConvolutionStep) -> bool:
        """Whether the step's patches must be copied, because they are not whole input rows."""
        return not step.is_contiguous or len(step.height_map) != self.height_in

    def patch_cols(self) -> int:
        """Number of columns of the widest patches that have to be gathered, or 0."""
        widths = [len(s.height_map) for s in self.steps if self.needs_gather(s)]
        return max(widths, default=0) * self.num_filters_in


def compile_convolution(
    model: ConvolutionModel,
    input_indexes: IndexArray,
    output_indexes: IndexArray,
    max_memory_mb: float,
) -> tuple[ConvolutionComputation, IndexArray, IndexArray]:
    """Compile a convolution; also returns input and output Indexes, in the order that it needs.

    Blank rows (t = NO_TIME) fill gaps in time. Temporary patches take up to `max_memory_mb`
    megabytes. RequestError if the rows cannot be brought into this order.
    """
    grid = grid_of(_NAME, input_indexes, output_indexes)
    # Numbers are drawn as in Kaldi's check of its compilation: which minibatches store statistics
    # depends on the random numbers that follow.
    for _ in range(4 * min(5, grid.num_t_out)):
        tensor.random.rand_int(0, grid.num_t_out - 1)
    _pad_times(model, grid)
    _append_frames(grid)
    ratio = grid.reorder_t_in
    computation = ConvolutionComputation(
        num_filters_in=model.num_filters_in,
        num_filters_out=model.num_filters_out,
        height_in=ratio * model.height_in,
        height_out=model.height_out,
        num_t_in=grid.num_t_in // ratio,
        num_t_out=grid.num_t_out,
        num_images=grid.num_images,
        steps=_make_steps(model, grid),
    )
    _set_temp_size(computation, max_memory_mb)
    if (problem := computation.problem()) is not None:
        raise _cannot(grid, problem)
    return computation, *indexes_on_grid(_NAME, grid, input_indexes, output_indexes)


def _cannot(grid: TimeGrid, reason: str) -> RequestError:
    return RequestError(
        f"{_NAME} cannot order its rows ({reason}): output times "
        f"{grid.start_t_out} to {grid.last_t_out} in steps of {grid.t_step_out}, input times "
        f"{grid.start_t_in} to {grid.last_t_in} in steps of {grid.t_step_in}"
    )


def _pad_times(model: ConvolutionModel, grid: TimeGrid) -> None:
    """Extend the grid's input times to all that the offsets reach; absent times become blank rows.

    The input step is made to divide the gaps between offsets and the output step. In rare cases
    this needs more blanks than necessary, but it avoids many special cases.
    """
    times = model.time_offsets
    if len(times) == 1:
        return  # all inputs are required
    old_step = grid.t_step_in
    grid.t_step_in = int(np.gcd.reduce([old_step, grid.t_step_out, *np.diff(times)]))
    grid.num_t_in = 1 + old_step * (grid.num_t_in - 1) // grid.t_step_in
    first = grid.start_t_out + int(times[0])
    last = grid.last_t_out + int(times[-1])
    before, after = grid.start_t_in - first, last - grid.last_t_in
    if before < 0 or after < 0 or before % grid.t_step_in or after % grid.t_step_in:
        raise _cannot(grid, "inputs are not where the time offsets want them")
    grid.num_t_in += (before + after) // grid.t_step_in
    grid.start_t_in -= before


def _append_frames(grid: TimeGrid) -> None:
    """Set grid.reorder_t_in: how many input frames are joined, output step / input step.

    RequestError if the output's step is no multiple of the input's.
    """
    if grid.t_step_out == 0:  # a single output time allows any step
        grid.t_step_out = grid.t_step_in
    if grid.t_step_out == grid.t_step_in:
        return
    if grid.t_step_in == 0 or grid.t_step_out % grid.t_step_in != 0:
        raise _cannot(grid, "the output's step is no multiple of the input's")
    grid.reorder_t_in = grid.t_step_out // grid.t_step_in
    grid.num_t_in = -(-grid.num_t_in // grid.reorder_t_in) * grid.reorder_t_in


def _make_steps(model: ConvolutionModel, grid: TimeGrid) -> list[ConvolutionStep]:
    """One step for each input time, or group of `reorder_t_in` times, that the offsets reach."""
    step = max(1, grid.t_step_in)
    frames, remainder = np.divmod(model.offsets[:, 0] + grid.start_t_out - grid.start_t_in, step)
    if remainder.any():
        raise _cannot(grid, "a time offset falls between input times")
    shifts, within = np.divmod(frames, grid.reorder_t_in)
    heights = model.input_heights()
    inside = (heights >= 0) & (heights < model.height_in)
    heights = np.where(inside, heights + within * model.height_in, -1).astype(np.int32)
    starts = np.flatnonzero(np.diff(shifts, prepend=shifts[0] - 1))
    ends = np.append(starts[1:], len(shifts))
    return [
        ConvolutionStep(
            int(shifts[start]),
            int(start) * model.num_filters_in,
            np.ascontiguousarray(heights[:, start:end]).ravel(),
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def _set_temp_size(computation: ConvolutionComputation, limit: float) -> None:
    """Set temp_rows, the output rows processed at once, and temp_cols, the width of their patches.

    The patches fit into `limit` * 10^6 bytes. Arithmetic is in float32, as Kaldi's, because
    programs store the result.
    """
    all_rows = computation.num_t_out * computation.num_images
    if (cols := computation.patch_cols()) == 0:
        return
    megabytes = np.float32(4 * (all_rows / 1000.0) * (cols / 1000.0))
    pieces = int(1.0 + float(megabytes / np.float32(limit)))
    rows = -(-computation.num_t_out // pieces) * computation.num_images
    computation.temp_rows, computation.temp_cols = rows, cols
