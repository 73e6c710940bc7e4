"""Reductions of columns as C, of several formulas at once, with assignments in the same pass.

Columns are done in tiles that stay in the first cache, some rows at a time: float32 values are
added up as such over a few rows, and those sums in float64. How many rows does not depend on the
number of columns or threads, so neither do results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.kernels import Job, Kernel, Number, indented
from nnet3tools.tensor.cpu.spelling import C_TYPES, STORED_TYPES, C
from nnet3tools.tensor.cpu.walks import SIMD, Parameters, Walk, arguments
from nnet3tools.tensor.formulas import Assignments, Expr, Type, type_of_dtype
from nnet3tools.tensor.formulas.lowered import Kind, used
from nnet3tools.tensor.formulas.stages import varying
from nnet3tools.tensor.source_body import Body

__all__ = ["GROUP", "Columns", "Finish", "column_job", "finish", "finish_arguments"]

GROUP = 64
"""Columns that one thread does."""

_TILE_BYTES = 8192
"""Of the sums of a tile of columns."""

START = {"sum": "0", "max": "-INFINITY", "min": "INFINITY"}


@dataclass(frozen=True)
class Finish:
    """How a reduced value is stored: out = factor * value (+ beta * out)."""

    type: Type
    """The output's."""
    factor_in_memory: bool
    """Whether the factor is what it is at the time, divided by a number."""
    has_beta: bool

    def take(self, taken: Parameters, k: int, axes: int) -> None:
        """The arguments that `finish_arguments` gives."""
        taken.pointer(f"out{k}", STORED_TYPES[self.type])
        for axis in range(axes):
            taken.size(f"t{k}_{axis}")
        if self.factor_in_memory:
            taken.number_at(f"alpha{k}")
        taken.number(f"factor{k}")
        if self.has_beta:
            taken.number(f"beta{k}")

    def line(self, k: int, value: str, indexes: Sequence[str]) -> str:
        """The line that stores."""
        offset = " + ".join(f"{index} * t{k}_{axis}" for axis, index in enumerate(indexes)) or "0"
        place = f"out{k}[{offset}]"
        factor = f"(alpha{k} * factor{k})" if self.factor_in_memory else f"factor{k}"
        given = f"{factor} * (f64){value}" + (f" + beta{k} * {place}" if self.has_beta else "")
        return f"{place} = ({C_TYPES[self.type]})({given});"


def finish(out: np.ndarray, alpha: Any, beta: float) -> Finish:
    """How values go into this output."""
    return Finish(type_of_dtype(out.dtype), not isinstance(alpha, (int, float)), beta != 0.0)


def finish_arguments(
    out: np.ndarray, strides: Sequence[int], alpha: Any, divisor: float, beta: float
) -> list[Any]:
    """The arguments of a Finish; `alpha` is a number or a Number."""
    values: list[Any] = [out, *strides]
    if isinstance(alpha, (int, float)):
        values.append(Number(float(alpha) / divisor))
    else:
        values += [alpha.array, Number(1.0 / divisor)]
    return [*values, Number(float(beta))] if beta != 0.0 else values


@dataclass(frozen=True)
class Columns:
    """A pass over rows: assignments, and reductions of all columns."""

    stores: Assignments | None
    sums: tuple[tuple[Expr, str, Finish], ...]
    """Formula, "sum", "max" or "min", and where it goes."""
    rows: int
    """Rows that are added up in float32."""


def column_job(
    columns: Columns, found: Walk, sizes: Sequence[int], operands: Sequence[Any],
    strides: Sequence[Sequence[int]], outs: Sequence[Sequence[Any]],
) -> Job:  # fmt: skip
    """The job for operands walked along (outer axes, rows, columns).

    `outs` are the `finish_arguments` of each reduction, with strides for the outer axes and the
    columns.
    """
    kernel = _kernel(columns, found)
    values = [*sizes, *arguments(found, operands, strides)]
    for some in outs:
        values += some
    steps = -(-sizes[-1] // GROUP)
    return Job(kernel, values, steps, math.prod(sizes) * (len(operands) + len(outs)))


@functools.lru_cache(maxsize=512)
def _kernel(columns: Columns, found: Walk) -> Kernel:
    taken = Parameters()
    for axis in range(found.axes):
        taken.size(f"n{axis}")
    taken.walked(found)
    for k, (_, _, out) in enumerate(columns.sums):
        out.take(taken, k, found.axes - 1)
    body = [*taken.lines, *_tiles(columns, found)]
    return Kernel("".join(f"  {line}\n" for line in body))


def _tiles(columns: Columns, found: Walk) -> list[str]:
    """Loops over tiles of columns, and the outer axes, around the reduction of one tile."""
    body = Body(found.types, C)
    roots = [body.lower(formula) for formula, _, _ in columns.sums]
    parts = ["f32" if root.type is Type.FLOAT32 else "f64" for root in roots]
    size = 12 * len(parts) or 4
    tile = max(GROUP, _TILE_BYTES // size // GROUP * GROUP)
    outer = [f"k{axis}" for axis in range(found.axes - 2)]
    rows = found.axes - 2
    # one loop for all sums: the compiler takes twice as long for a loop each
    kinds = [how for _, how, _ in columns.sums]
    lines = [f"f64 all{k}[{tile}];" for k in range(len(kinds))]
    lines += _each_column([f"all{k}[c] = {START[how]};" for k, how in enumerate(kinds)])
    lines += [f"for (i64 r0 = 0; r0 < n{rows}; r0 += {columns.rows}) {{"]
    lines += [f"  {held} part{k}[{tile}];" for k, held in enumerate(parts)]
    starts = [f"part{k}[c] = {START[how]};" for k, how in enumerate(kinds)]
    lines += indented(_each_column(starts))
    lines += [f"  for (i64 r = r0; r < NN_LEAST(r0 + {columns.rows}, n{rows}); ++r) {{"]
    lines += indented(_row(columns, found, body, roots, outer), 2)
    lines += ["  }"]
    adds = [_combined(how, f"all{k}[c]", f"part{k}[c]", "f64") for k, how in enumerate(kinds)]
    lines += indented(_each_column(adds))
    lines += ["}"]
    where = [*outer, "(g + c)"]
    lines += _each_column(
        [out.line(k, f"all{k}[c]", where) for k, (_, _, out) in enumerate(columns.sums)]
    )
    for axis, index in reversed(list(enumerate(outer))):
        head = f"for (i64 {index} = 0; {index} < n{axis}; ++{index}) {{"
        lines = [head, *indented(lines), "}"]
    return [
        f"const i64 last = NN_LEAST(end * {GROUP}, n{found.last});",
        f"for (i64 g = begin * {GROUP}; g < last; g += {tile}) {{",
        f"  const i64 width = NN_LEAST({tile}, last - g);",
        *indented(lines),
        "}",
    ]


def _each_column(lines: Sequence[str]) -> list[str]:
    """A loop over the columns of a tile."""
    return [SIMD, "for (i64 c = 0; c < width; ++c) {", *indented(lines), "}"] if lines else []


def _row(
    columns: Columns, found: Walk, body: Body, roots: Sequence[Any], outer: Sequence[str]
) -> list[str]:
    """One row of a tile."""
    items = columns.stores.items if columns.stores is not None else ()
    stored = [body.lower(value) for _, value in items]
    instructions = used(body.instructions, [*roots, *stored])
    varies = varying(instructions, found.varies)
    once: list[str] = []
    each = ["const i64 i = g + c;"]
    arrays = [target.number - 1 for target, _ in items]
    for v in instructions:
        if v.kind is not Kind.OPERAND:
            (each if v in varies else once).extend(body.emit(v))
        elif not v.type.is_weak:
            arrays.append(v.number)
            (each if v in varies else once).append(found.load(v.number))
    for (target, _), root in zip(items, stored, strict=True):
        each.append(found.store(target.number - 1, body.name(root), C_TYPES[root.type]))
    for k, (root, (_, how, _)) in enumerate(zip(roots, columns.sums, strict=True)):
        held = "f32" if root.type is Type.FLOAT32 else "f64"
        each.append(_combined(how, f"part{k}[c]", body.name(root), held))
    return [
        *[found.row(i, [*outer, "r"]) for i in dict.fromkeys(arrays)],
        *once,
        SIMD,
        "for (i64 c = 0; c < width; ++c) {",
        *indented(each),
        "}",
    ]


def _combined(how: str, total: str, value: str, held: str) -> str:
    """The line that takes a value into a reduction."""
    if how == "sum":
        return f"{total} += {value};"
    return f"{total} = nn_{how}{'f' if held == 'f32' else ''}({total}, {value});"
