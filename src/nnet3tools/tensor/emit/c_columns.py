"""Formulas that reduce columns, in C: tiles of columns that stay in cache for all passes.

Within a tile, values are added up in their own type over a few rows, and these sums in float64. The
number of these rows does not depend on the number of columns or threads, so neither do results.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from nnet3tools.tensor.emit.body import indented, loop
from nnet3tools.tensor.emit.c import SIMD, C, kernel_text
from nnet3tools.tensor.emit.columns import ColumnPasses
from nnet3tools.tensor.emit.walk import Walk
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.formulas.lowered import Instruction, Kind

GROUP = 64
"""Columns that one thread does."""

ROWS = 16
"""Rows of which values are added up in their own type."""

_TILE_BYTES = 8192
"""Bytes of a tile's sums, if a single pass reads rows."""

_MOST_COLUMNS = 512
"""Columns of a tile, at most."""


@functools.lru_cache(maxsize=256)
def column_kernel(assignments: Assignments, walk: Walk, rows: int = ROWS) -> str:
    """C text of a kernel for a formula that reduces columns: axis -2 are rows, -1 columns.

    `walk` says how operands are in memory. Values are added up in their own type over `rows` rows,
    then in float64. The kernel's first argument is the number of columns that it does at a time (a
    tile), if the rows are passed over more than once.
    """
    return _Columns(ColumnPasses(assignments, walk, C), rows).text()


class _Columns:
    """Writes the C lines of a kernel for a formula that reduces columns."""

    def __init__(self, plan: ColumnPasses, rows: int) -> None:
        self._plan, self._body, self._rows = plan, plan.body, rows
        self._num_rows = f"n{plan.walk.axes - 2}"
        self._outer = [f"k{axis}" for axis in range(plan.walk.axes - 2)]
        self._tile = _MOST_COLUMNS
        if plan.num_readers == 1:
            size = 12 * len(plan.all_reductions) or 4
            self._tile = max(GROUP, min(_MOST_COLUMNS, _TILE_BYTES // size // GROUP * GROUP))

    def text(self) -> str:
        """The C text of the whole kernel."""
        plan, body = self._plan, self._body
        lines = self._arrays("all", plan.all_reductions)
        for number in range(plan.last + 1):
            lines += self._arrays("kept", plan.kept(number))
            lines += self._column_values(number)
            if number < plan.last:
                lines += self._reduce(number)
            elif plan.stored(number):
                lines += loop(_rows("0", self._num_rows), self._row_lines(number))
        for axis, index in reversed(list(enumerate(self._outer))):
            lines = loop(f"for (i64 {index} = 0; {index} < n{axis}; ++{index})", lines)
        step = f"NN_LEAST(tile, {self._tile})" if plan.num_readers > 1 else f"{self._tile}"
        lines = [
            f"const i64 last = NN_LEAST(end * {GROUP}, n{plan.walk.axes - 1});",
            f"const i64 step = {step};",
            "(void)tile;",
            *loop(
                f"for (i64 g = begin * {GROUP}; g < last; g += step)",
                ["const i64 width = NN_LEAST(step, last - g);", *lines],
            ),
        ]
        return kernel_text(body, lines, ["tile"])

    def _arrays(self, prefix: str, values: Sequence[Instruction]) -> list[str]:
        """C declarations of arrays `prefix`_v for values v; one element per column of a tile."""
        body, tile = self._body, self._tile
        return [f"{body.held(v)} {prefix}_{body.name(v)}[{tile}];" for v in values]

    def _column_values(self, number: int) -> list[str]:
        """C lines of a loop over a tile's columns that computes values of whole columns.

        The values follow from reductions of earlier passes. They are what pass `number` over the
        rows needs, and in the last pass the formula's results.
        """
        plan, body = self._plan, self._body
        values, stored = plan.passes[number].columns, plan.stored_totals(number)
        made = plan.passes[number - 1].reductions if number else ()
        known = [v for v in plan.known(number) if v not in values]
        inner = [f"{self._total(v)} /= (f64){self._num_rows};" for v in made
                 if v.name == "col_mean"]  # fmt: skip
        inner += plan.lookups(values, [root for _, root in stored], known, self._total)
        inner += [line for v in values for line in body.line(v, "(g + c)")]
        inner += [f"{self._total(v)} = {body.name(v)};" for v in plan.kept(number)]
        inner += [body.store(t, root, "(g + c)") for t, root in stored]
        if not inner:
            return []
        arrays = body.arrays_of(values, stored)
        return ["{", *indented([*self._pointers(arrays, "0"), *_each_column(inner)]), "}"]

    def _total(self, v: Instruction) -> str:
        """C text of the array element for column `c` of `v`, a column reduction or kept value."""
        return f"{'all' if v.kind is Kind.REDUCE_COLUMN else 'kept'}_{self._body.name(v)}[c]"

    def _pointers(self, arrays: Sequence[int], row: str) -> list[str]:
        return [self._body.row(i, [*self._outer, row]) for i in arrays]

    def _reduce(self, number: int) -> list[str]:
        """C loops over a tile's rows and columns for the column reductions of pass `number`."""
        names = [
            (self._body.name(v), self._body.held(v.inputs[0]))
            for v in self._plan.passes[number].reductions
        ]
        end = f"NN_LEAST(r0 + {self._rows}, {self._num_rows})"
        block = [
            *[f"{held} part_{name}[{self._tile}];" for name, held in names],
            *_each_column([f"part_{name}[c] = 0;" for name, _ in names]),
            *loop(_rows("r0", end), self._row_lines(number)),
            *_each_column([f"all_{name}[c] += part_{name}[c];" for name, _ in names]),
        ]
        head = f"for (i64 r0 = 0; r0 < {self._num_rows}; r0 += {self._rows})"
        before = _each_column([f"all_{name}[c] = 0;" for name, _ in names])
        return [*before, *loop(head, block)]

    def _row_lines(self, number: int) -> list[str]:
        """C lines that process one row of a tile (some columns) in pass `number` over the rows."""
        plan, body = self._plan, self._body
        values, stored = plan.row_values(number), plan.stored(number)
        found = plan.lookups(values, plan.row_roots(number), plan.known(number), self._total)
        once = [line for v in values if v not in plan.within for line in body.line(v)]
        each = ["const i64 i = g + c;", *found]
        each += [line for v in values if v in plan.within for line in body.line(v)]
        each += [body.store(t, root) for t, root in stored]
        each += [
            f"part_{body.name(v)}[c] += {body.name(v.inputs[0])};"
            for v in plan.passes[number].reductions
        ]
        arrays = body.arrays_of(values, stored)
        return [*self._pointers(arrays, "r"), *once, *_each_column(each)]


def _rows(first: str, end: str) -> str:
    return f"for (i64 r = {first}; r < {end}; ++r)"


def _each_column(lines: Sequence[str]) -> list[str]:
    """C lines of a loop that does `lines` for each column `c` of the columns done at a time."""
    return [SIMD, *loop("for (i64 c = 0; c < width; ++c)", lines)] if lines else []
