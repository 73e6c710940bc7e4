"""Formulas that reduce columns, in C: tiles of columns that stay in cache for all passes.

Within a tile, values are added up as they are over a few rows, and these sums in float64. How many
rows these are does not depend on the number of columns or threads, so neither do results.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.tensor.emit.body import Body, indented, loop
from nnet3tools.tensor.emit.c import SIMD, C, kernel_text
from nnet3tools.tensor.emit.walk import Walk
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.formulas.lowered import Instruction, Kind
from nnet3tools.tensor.formulas.stages import Pass, passes, varying

__all__ = ["GROUP", "ROWS", "column_kernel"]

GROUP = 64
"""Columns that one thread does."""

ROWS = 16
"""Rows of which values are added up in their own type."""

_TILE_BYTES = 8192
"""Of the sums of a tile, if one pass over the rows does."""

_MOST_COLUMNS = 512
"""Of a tile."""


def column_kernel(assignments: Assignments, walk: Walk, rows: int = ROWS) -> str:
    """The kernel of a formula that reduces columns: axis -2 of the walk; axis -1 are the columns.

    Axes before these are looped over. `rows` are added up in the values' own type. The first
    argument is the most columns of a tile where more than one pass reads rows.
    """
    return _Columns(assignments, walk, rows).text()


class _Columns:
    """The lines of a kernel."""

    def __init__(self, assignments: Assignments, walk: Walk, rows: int) -> None:
        self._walk, self._rows = walk, rows
        self._body = body = Body.of_walk(walk, C)
        pairs = [(t.number - 1, body.lower(value)) for t, value in assignments.items]
        self._stored = [pair for pair in pairs if walk.varies(pair[0], -2)]
        """Targets that are assigned whole columns, and their values."""
        self._totals = [pair for pair in pairs if pair not in self._stored]
        roots = [root for _, root in pairs]
        along = varying(body.instructions, lambda i: walk.varies(i, -2), {Kind.REDUCE_COLUMN})
        self._along = along
        after = set[Instruction]()
        for v in body.instructions:
            if v.kind is Kind.REDUCE_COLUMN or any(i in after for i in v.inputs):
                after.add(v)
        self._each = varying(body.instructions, walk.varies, ()) | after
        """Values that loops over columns compute."""
        # the first pass stores if it can, so that one pass over the rows may do
        self._stores_first = not any(root in after for _, root in self._stored)
        if self._stores_first:
            roots = [root for _, root in self._totals]
        self._passes = passes(body.instructions, roots, walk.varies, lambda i: walk.varies(i, -2))
        self._made: set[Instruction] = set()
        """Values, the same for all rows, that have been computed in earlier passes."""

    def text(self) -> str:
        """The kernel."""
        rows_read = len(self._passes) - (self._stores_first or not self._stored)
        reductions = [v for p in self._passes for v in p.reductions]
        size = 12 * len(reductions) or 4
        tile = max(GROUP, min(_MOST_COLUMNS, _TILE_BYTES // size // GROUP * GROUP))
        if rows_read > 1:
            tile = _MOST_COLUMNS
        lines = [f"f64 all_{self._body.name(v)}[{tile}];" for v in reductions]
        for number, each in enumerate(self._passes):
            lines += self._pass(each, number, tile)
        outer, last = self._walk.axes - 2, self._walk.axes - 1
        for axis in reversed(range(outer)):
            lines = loop(f"for (i64 k{axis} = 0; k{axis} < n{axis}; ++k{axis})", lines)
        step = f"NN_LEAST(tile, {tile})" if rows_read > 1 else f"{tile}"
        lines = [
            f"const i64 last = NN_LEAST(end * {GROUP}, n{last});",
            f"const i64 step = {step};",
            "(void)tile;",
            *loop(
                "for (i64 g = begin * GROUP; g < last; g += step)".replace("GROUP", str(GROUP)),
                ["const i64 width = NN_LEAST(step, last - g);", *lines],
            ),
        ]
        return kernel_text(self._body, lines, ["tile"])

    def _pass(self, each: Pass, number: int, tile: int) -> list[str]:
        """Values of whole columns, then the loops over rows."""
        is_last = number == len(self._passes) - 1
        lines = self._column_values(each, number, tile)
        if not is_last:
            stored = self._stored if self._stores_first and number == 0 else []
            lines += self._reduce(each.reductions, stored, tile)
        elif self._stored and not (self._stores_first and number > 0):
            lines += loop(self._row_loop("0", self._size), self._row(self._stored, []))
        return lines

    @property
    def _size(self) -> str:
        return f"n{self._walk.axes - 2}"

    @staticmethod
    def _row_loop(first: str, end: str) -> str:
        return f"for (i64 r = {first}; r < {end}; ++r)"

    def _column_values(self, each: Pass, number: int, tile: int) -> list[str]:
        """The loop that makes a pass's values of whole columns, and stores totals at the end."""
        body, is_last = self._body, number == len(self._passes) - 1
        totals = [root for _, root in self._totals]
        reductions = self._passes[number - 1].reductions if number else ()
        inner = [f"{_total(body, v)} /= (f64){self._size};" for v in reductions
                 if v.name == "col_mean"]  # fmt: skip
        self._made.update(reductions)
        kept = list[str]()
        inner += self._known_lines(each.columns, totals if is_last else ())
        for v in each.columns:
            inner += body.line(v, "(g + c)")
            if v.kind in (Kind.OPERAND, Kind.CONSTANT):
                continue
            if self._is_used_later(v, each) or (v in totals and not is_last):
                kept.append(f"{body.held(v)} kept_{body.name(v)}[{tile}];")
                inner.append(f"kept_{body.name(v)}[c] = {body.name(v)};")
        self._made.update(v for v in each.columns if v.kind in (Kind.CAST, Kind.APPLY))
        if is_last:
            inner += [body.store(t, root, "(g + c)") for t, root in self._totals]
        if not inner:
            return []
        arrays = dict.fromkeys([*body.arrays_of(each.columns), *(t for t, _ in self._totals)])
        return [*kept, "{", *indented([*self._pointers(arrays, "0"), *_each_column(inner)]), "}"]

    def _is_used_later(self, v: Instruction, each: Pass) -> bool:
        """Whether a value of whole columns is needed by rows from this pass on, or a later pass."""
        users = [u for u in self._body.instructions if v in u.inputs]
        stored = [root for _, root in self._stored]
        return v in stored or any(u in self._along or u not in each.columns for u in users)

    def _known_lines(
        self, values: Sequence[Instruction], roots: Sequence[Instruction]
    ) -> list[str]:
        """The lines that look up columns' values of earlier passes, for these values and roots."""
        body = self._body
        below = {i for v in values for i in v.inputs} | set(roots)
        found = [v for v in body.instructions if v in self._made and v in below]
        return [f"const {body.held(v)} {body.name(v)} = {_total(body, v)};" for v in found]

    def _pointers(self, arrays: Sequence[int] | dict[int, None], row: str) -> list[str]:
        outer = [f"k{axis}" for axis in range(self._walk.axes - 2)]
        return [self._body.row(i, [*outer, row]) for i in arrays]

    def _reduce(
        self, reductions: Sequence[Instruction], stored: Sequence[tuple[int, Instruction]],
        tile: int,
    ) -> list[str]:  # fmt: skip
        """The loops that reduce the columns of a tile: one loop for all reductions."""
        names = [(v, self._body.name(v), self._body.held(v.inputs[0])) for v in reductions]
        rows = loop(
            self._row_loop("r0", f"NN_LEAST(r0 + {self._rows}, {self._size})"),
            self._row(stored, reductions),
        )
        block = [
            *[f"{held} part_{name}[{tile}];" for _, name, held in names],
            *_each_column([f"part_{name}[c] = 0;" for _, name, _ in names]),
            *rows,
            *_each_column([f"all_{name}[c] += part_{name}[c];" for _, name, _ in names]),
        ]
        head = f"for (i64 r0 = 0; r0 < {self._size}; r0 += {self._rows})"
        before = _each_column([f"all_{name}[c] = 0;" for _, name, _ in names])
        return [*before, *loop(head, block)]

    def _row(
        self, stored: Sequence[tuple[int, Instruction]], reductions: Sequence[Instruction]
    ) -> list[str]:
        """One row of a tile."""
        body = self._body
        roots = [*[root for _, root in stored], *[v.inputs[0] for v in reductions]]
        values = body.needed(roots, self._made)
        once = [line for v in values if v not in self._each for line in body.line(v)]
        each = ["const i64 i = g + c;"]
        each += self._known_lines(values, roots)
        each += [line for v in values if v in self._each for line in body.line(v)]
        each += [body.store(t, root) for t, root in stored]
        each += [f"part_{body.name(v)}[c] += {body.name(v.inputs[0])};" for v in reductions]
        arrays = dict.fromkeys([*(t for t, _ in stored), *body.arrays_of(values)])
        return [*self._pointers(arrays, "r"), *once, *_each_column(each)]


def _each_column(lines: Sequence[str]) -> list[str]:
    """A loop over the columns of a tile."""
    return [SIMD, *loop("for (i64 c = 0; c < width; ++c)", lines)] if lines else []


def _total(body: Body, v: Instruction) -> str:
    """Where a column's reduction or kept value is."""
    return f"{'all' if v.kind is Kind.REDUCE_COLUMN else 'kept'}_{body.name(v)}[c]"
