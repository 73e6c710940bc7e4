"""TdnnComponent: an affine map of several frames, spliced inside the component.

Kaldi's nnet-tdnn-component.cc. Rows form a regular grid of times (regular_grid.py), so the
frames at one time offset are a strided view of the input:

    out = bias + sum over offsets o of  in[at t + o] * linear_params[:, block of o]^T

This is one product, which reads the wide side (inputs or outputs) once: with a spliced copy of the
inputs if they are narrower than the outputs, else with the rows of all offsets joined.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, ProgramError, RequestError
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.array_fields import Matrix, Vector
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.common import get_positive, random_normal
from nnet3tools.nnet.components.fields import Flag, Float, Int, IntVector
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.components.regular_grid import GridSizes, indexes_on_grid, sizes_of
from nnet3tools.nnet.components.time_windows import at_shifts
from nnet3tools.nnet.components.two_sided import (
    NUM_SAMPLES_HISTORY,
    TwoSidedNaturalGradient,
    set_columns,
)
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.indexes import IndexArray, IntArray, sorted_unique
from nnet3tools.nnet.parts import JoinedParts, in_columns, product_with

_set_rows = tensor.element("_1 = _2")


@register_precomputed
class TdnnIndexes(PrecomputedIndexes):
    """Precomputed indexes: which input rows each time offset reads.

    Offset i reads row row_offsets[i] for output row 0, row_stride rows further for each next one.
    """

    type_name: ClassVar[str] = "TdnnComponentPrecomputedIndexes"

    row_stride = Int("<RowStride>", positive=True)
    row_offsets = IntVector("<RowOffsets>")

    def problem(self) -> str | None:
        good = len(self.row_offsets) > 0 and not (self.row_offsets < 0).any()
        return None if good else "there must be row offsets, and none below 0"

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        end = int(self.row_offsets.max()) + self.row_stride * (num_outputs - 1) + 1
        return (
            isinstance(component, TdnnComponent)
            and len(self.row_offsets) == len(component.time_offsets)
            and end <= num_inputs
        )

    def joined(self, rows: Array, num_rows: int) -> JoinedParts | None:
        """All `part`s as ranges of one view of `rows`; None if that has many more rows than one."""
        offsets, stride = self.row_offsets.tolist(), self.row_stride
        first = min(offsets)
        starts, rest = zip(*(divmod(offset - first, stride) for offset in offsets), strict=True)
        count = num_rows + max(starts)
        end = first + stride * (count - 1) + 1
        if any(rest) or len(starts) == 1 or 4 * count > 5 * num_rows or end > len(rows):
            return None
        return JoinedParts(rows[first:end:stride], starts, num_rows)

    def part(self, rows: Array, i: int, num_rows: int) -> Array:
        """View of the `num_rows` rows of the input `rows` that the i-th time offset reads."""
        if i >= len(self.row_offsets):
            raise DataError(
                f"the program has {len(self.row_offsets)} time offsets for a TdnnComponent that "
                "has more: it was compiled for another network"
            )
        start = int(self.row_offsets[i])
        end = start + self.row_stride * (num_rows - 1) + 1
        if end > rows.shape[0]:
            raise ProgramError(f"TDNN needs input row {end - 1}, there are {rows.shape[0]}")
        return rows[start : end : self.row_stride]

    def runs(self, i: int, num_rows: int) -> Iterator[slice]:
        """Cut rows 0 to `num_rows` of the `part` of time offset i where other parts begin or end.

        A run is then all of a run of another part or shares no row with it. On a GPU, what is done
        to the runs of all parts is one kernel.
        """
        offsets = self.row_offsets.tolist()
        ahead = [divmod(offset - offsets[i], self.row_stride) for offset in offsets]
        others = {n % num_rows for n, rest in ahead if not rest and abs(n) < num_rows}
        for begin, end in itertools.pairwise([*sorted(others), num_rows]):
            yield slice(begin, end)


class _Alphas(Float):
    """Field for the natural-gradient alphas <AlphaInOut>; old files have one number <Alpha>."""

    def read(self, reader: Reader, owner: TdnnComponent) -> None:
        has_both = reader.peek_token() == "<AlphaInOut>"
        super().read(reader, owner)
        owner.alpha_out = reader.read_float() if has_both else owner.alpha_in

    def write(self, writer: Writer, owner: TdnnComponent) -> None:
        super().write(writer, owner)
        writer.write_float(owner.alpha_out)


@register
class TdnnComponent(TwoSidedNaturalGradient):
    """Affine (or linear) function of the frames at `time_offsets` from the output's time.

    `linear_params` is (output_dim, len(time_offsets) * input_dim); `bias_params` is (output_dim,)
    or empty. The trainer enforces `orthonormal_constraint`.
    """

    FORMULA = "y(t) = sum of W_k x(t + time-offsets[k]) over k, plus b"
    KEYS = (
        "input-dim output-dim param-stddev=1/sqrt(input-dim*offsets) bias-mean=0 "
        "bias-stddev=1 use-bias=true"
    )
    PROPERTIES = Properties.BACKPROP_ADDS | Properties.BACKPROP_NEEDS_INPUT
    INFO = UpdatableComponent.INFO + " orthonormal_constraint time_offsets linear_params"

    time_offsets = IntVector("<TimeOffsets>", "time-offsets")
    linear_params = Matrix("<LinearParams>", key="linear-params", norms=True)
    bias_params = Vector("<BiasParams>", key="bias")
    orthonormal_constraint = Float(
        "<OrthonormalConstraint>", "orthonormal-constraint", 0.0, show_default=False
    )
    use_natural_gradient = Flag("<UseNaturalGradient>", "use-natural-gradient", True)
    num_samples_history = NUM_SAMPLES_HISTORY
    alpha_in = _Alphas(
        "<AlphaInOut>", "alpha-in", 4.0, also="<Alpha>", of="preconditioner_in.alpha"
    )
    alpha_out = Float(None, "alpha-out", 4.0, of="preconditioner_out.alpha")
    rank_in = Int("<RankInOut>", "rank-in", 20, of="preconditioner_in.rank")
    rank_out = Int("", "rank-out", 80, of="preconditioner_out.rank")

    @property
    def input_dim(self) -> int:
        return int(self.linear_params.shape[1]) // len(self.time_offsets)

    @property
    def output_dim(self) -> int:
        return int(self.linear_params.shape[0])

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias; use-bias=false omits it."""
        return self.bias_params.size != 0

    @property
    def properties(self) -> Properties:
        """The property flags; without a bias, `propagate` adds to its output."""
        return self.FLAGS if self.has_bias else self.FLAGS | Properties.PROPAGATE_ADDS

    # -- creation and files

    def init_from_config(self, line: ConfigLine) -> None:
        """Draw random parameters for input-dim and output-dim; use-bias=false omits the bias."""
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        if not len(self.time_offsets):
            raise line.error("time-offsets must be a list of different integers")
        spliced_dim = input_dim * len(self.time_offsets)
        stddev = line.get_float("param-stddev", -1.0)
        if stddev < 0.0:
            stddev = 1.0 / math.sqrt(spliced_dim)
        self.linear_params = random_normal((output_dim, spliced_dim), stddev)
        mean, stddev = line.get_float("bias-mean", 0.0), line.get_float("bias-stddev", 1.0)
        if line.get_bool("use-bias", True):  # without a bias Kaldi draws nothing
            self.bias_params = random_normal((output_dim,), stddev, mean)
        self.set_default_ranks(line, spliced_dim, output_dim)

    def problem(self) -> str | None:
        rows, cols = self.linear_params.shape
        if rows == 0 or not len(self.time_offsets):
            return "no parameters or no time-offsets"
        if len(sorted_unique(self.time_offsets)) != len(self.time_offsets):
            return f"time-offsets must be different integers, found {self.time_offsets.tolist()}"
        if cols % len(self.time_offsets) != 0:
            return f"{cols} parameter columns for {len(self.time_offsets)} time-offsets"
        if self.bias_params.size not in (0, rows):
            return f"bias of dimension {self.bias_params.size}, expected {rows}"
        return None

    def info(self) -> str:
        bias = self.info_of("bias_params") if self.has_bias else "has-bias=false"
        parts = [super().info(), bias, "use-natural-gradient=false"]
        if self.use_natural_gradient:
            parts[2:] = [
                self.info_of("rank_in rank_out num_samples_history"),
                f"update-period={self.preconditioner_in.update_period}",
                self.info_of("alpha_in alpha_out"),
            ]
        return ", ".join(parts)

    @property
    def input_matrix(self) -> Array:
        return self.linear_params

    # -- running

    def _parts(self, indexes: Indexes, in_matrix: Array, out_matrix: Array) -> Sequence[Array]:
        """Views of `in_matrix`, one for each time offset, with as many rows as `out_matrix`."""
        assert isinstance(indexes, TdnnIndexes)
        num_rows, count = out_matrix.shape[0], len(self.time_offsets)
        if self.input_dim > self.output_dim:
            joined = indexes.joined(in_matrix, num_rows)
            if joined is not None and len(joined) == count:
                return joined
        return [indexes.part(in_matrix, i, num_rows) for i in range(count)]

    @property
    def _splices(self) -> bool:
        """Whether it is faster to copy the inputs of all offsets side by side, for one product."""
        return 1 < len(self.time_offsets) and self.input_dim <= self.output_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        """Add the products for all time offsets to the bias, or to `out_value` without bias."""
        parts = self._parts(indexes, in_value, out_value)
        if self._splices:
            self._propagate_spliced(parts, out_value)
            return
        if self.has_bias:
            _set_rows(out_value, self.bias_params)
        product_with(parts, self.linear_params, out_value, beta=1.0)

    def _propagate_spliced(self, parts: Sequence[Array], out_value: Array) -> None:
        """The same as `propagate`, by a product with a copy of the parts side by side."""
        (rows, dim), num_in = out_value.shape, self.linear_params.shape[1]
        has_one = self.has_bias and rows > num_in  # the bias is the weight of an input that is 1
        with (
            tensor.padded_scratch((rows, num_in + has_one), like=out_value) as inputs,
            tensor.padded_scratch((dim, num_in + has_one), like=out_value) as params,
        ):
            set_columns(inputs, parts)
            if has_one:
                set_columns(params, [self.linear_params, self.bias_params.reshape(-1, 1)])
            elif self.has_bias:
                _set_rows(out_value, self.bias_params)
            weights = params if has_one else self.linear_params
            tensor.prod(out_value, inputs, weights, trans_b=True, beta=float(not has_one))

    def backprop_input(self, args: BackpropArgs) -> None:
        derivs, linear, indexes = args.out_deriv, self.linear_params, args.indexes
        assert isinstance(indexes, TdnnIndexes)
        parts = self._parts(indexes, args.in_deriv, derivs)
        if self._splices:
            with tensor.padded_scratch((len(derivs), linear.shape[1]), like=derivs) as spliced:
                tensor.prod(spliced, derivs, linear)
                for i, (part, columns) in enumerate(in_columns(parts, spliced)):
                    for rows in indexes.runs(i, len(part)):
                        tensor.add(part[rows], columns[rows])
        elif isinstance(parts, JoinedParts):
            with parts.spread(derivs) as wide:
                tensor.prod(parts.rows, wide, linear.reshape(-1, self.input_dim), beta=1.0)
        else:
            for part, columns in in_columns(parts, linear):
                tensor.prod(part, derivs, columns, beta=1.0)

    def update(self, args: BackpropArgs) -> None:
        if self.learning_rate == 0.0:
            return
        parts = self._parts(args.indexes, args.in_value, args.out_deriv)
        bias = self.bias_params if self.has_bias else None
        update = self.update_affine if self.use_natural_gradient else self.add_affine_gradient
        update(self.linear_params, bias, parts, args.out_deriv)

    # -- indexes

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        return at_shifts(output_indexes, self.time_offsets)

    def _grid(self, input_indexes: IndexArray, output_indexes: IndexArray) -> GridSizes:
        """The grid of input and output times, with an output step that the input step divides."""
        grid = sizes_of(self.type_name, input_indexes, output_indexes)
        step_in, step_out = grid.t_step_in, grid.t_step_out
        if step_out == 0:  # a single output time allows any step
            step_in = step_out = step_in or 1
        if step_in == 0 or step_out % step_in != 0:
            raise RequestError(
                f"TdnnComponent cannot order its rows: output times have step {step_out}, "
                f"which is no multiple of the input times' step {step_in}"
            )
        ratio = step_out // step_in
        num_t_in = -(-grid.num_t_in // ratio) * ratio
        return grid._replace(
            t_step_in=step_in, t_step_out=step_out, num_t_in=num_t_in, reorder_t_in=ratio
        )

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        grid = self._grid(input_indexes, output_indexes)
        return indexes_on_grid(self.type_name, grid, input_indexes, output_indexes)

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> TdnnIndexes:
        """Find the first input row for each time offset; rows are in `reorder_indexes` order."""
        # Kaldi draws here whether to check the rows; later decisions use the same stream.
        tensor.random.rand_int(0, 10)
        grid = self._grid(input_indexes, output_indexes)
        ahead = grid.start_t_out + self.time_offsets.astype(np.int64) - grid.start_t_in
        steps, remainder = np.divmod(ahead, grid.t_step_in)
        last = steps + (grid.num_t_out - 1) * grid.reorder_t_in
        if remainder.any() or (steps < 0).any() or (last >= grid.num_t_in).any():
            last_t_in = grid.start_t_in + (grid.num_t_in - 1) * grid.t_step_in
            last_t_out = grid.start_t_out + (grid.num_t_out - 1) * grid.t_step_out
            raise RequestError(
                f"TdnnComponent with time-offsets {self.time_offsets.tolist()} cannot compute "
                f"output times {grid.start_t_out} to {last_t_out} from input times "
                f"{grid.start_t_in} to {last_t_in} in steps of {grid.t_step_in}"
            )
        block, within = np.divmod(steps, grid.reorder_t_in)
        offsets = block * grid.reorder_t_in * grid.num_images + within
        return TdnnIndexes(row_stride=grid.reorder_t_in, row_offsets=offsets.astype(np.int32))
