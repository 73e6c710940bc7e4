"""The passes over rows of a formula that reduces columns: what each pass makes, keeps and stores.

Values of whole columns, which passes make of earlier reductions, are kept in memory where rows or
later passes need them. A pass computes everything else of a row again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnet3tools.tensor.emit.body import Body, Dialect
from nnet3tools.tensor.emit.walk import Walk
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.formulas.lowered import Instruction, Kind
from nnet3tools.tensor.formulas.stages import passes, varying


class ColumnPasses:
    """The passes over a matrix's rows that compute a formula with column reductions.

    Pass `number` (from 0) computes values of whole columns from earlier passes' reductions,
    then goes over the rows to make reductions or to store results.
    """

    def __init__(self, assignments: Assignments, walk: Walk, dialect: Dialect) -> None:
        self.walk, self.body = walk, Body(walk, dialect)
        pairs = self.body.assigned(assignments)
        self._stored = [pair for pair in pairs if walk.varies(pair[0], -2)]
        self.totals = [pair for pair in pairs if pair not in self._stored]
        """Targets with one number for each column, and their values: the last pass stores them."""
        instructions = self.body.instructions
        self._along = varying(instructions, self._differs, {Kind.REDUCE_COLUMN})
        after = set[Instruction]()
        for v in instructions:
            if v.kind is Kind.REDUCE_COLUMN or any(i in after for i in v.inputs):
                after.add(v)
        self.within = varying(instructions, walk.varies, ()) | after
        """Values that may differ within a row."""
        # the first pass stores if it can, so that one pass over the rows may do
        self._stores_first = not any(root in after for _, root in self._stored)
        roots = [root for _, root in (self.totals if self._stores_first else pairs)]
        self.passes = passes(instructions, roots, walk.varies, self._differs)
        self.last = len(self.passes) - 1
        """The number of the last pass."""

    def _differs(self, i: int) -> bool:
        return self.walk.varies(i, -2)

    @property
    def num_readers(self) -> int:
        """The number of passes that go over the rows; the last may only compute whole columns."""
        return self.last + bool(self.stored(self.last))

    @property
    def all_reductions(self) -> list[Instruction]:
        """The column reductions of all passes."""
        return [v for number in range(self.last) for v in self.passes[number].reductions]

    def stored(self, number: int) -> list[tuple[int, Instruction]]:
        """(target's operand number, value) for each operand whose rows pass `number` stores."""
        return self._stored if number == (0 if self._stores_first else self.last) else []

    def stored_totals(self, number: int) -> list[tuple[int, Instruction]]:
        """Pairs of `totals` that pass `number` stores: only the last pass stores any."""
        return self.totals if number == self.last else []

    def kept(self, number: int) -> list[Instruction]:
        """The values of whole columns, computed before pass `number`, that must be in memory.

        The pass reads them for its rows, or later passes read them.
        """
        columns = self.passes[number].columns
        final = {root for _, root in self._stored}
        if number < self.last:
            final |= {root for _, root in self.totals}
        return [
            v for v in columns
            if v.kind in (Kind.CAST, Kind.APPLY) and (
                v in final or any(
                    v in u.inputs and (u in self._along or u not in columns)
                    for u in self.body.instructions
                )
            )
        ]  # fmt: skip

    def known(self, number: int) -> list[Instruction]:
        """Values per column that are in memory when pass `number` begins to go over the rows."""
        made = [v for n in range(number + 1) for v in self.kept(n)]
        return made + [v for n in range(number) for v in self.passes[n].reductions]

    def row_values(self, number: int) -> list[Instruction]:
        """The values that pass `number` computes for each row, in order."""
        return self.body.needed(self.row_roots(number), self.known(number))

    def row_roots(self, number: int) -> list[Instruction]:
        """The values that pass `number` stores or reduces in each row."""
        stored = [root for _, root in self.stored(number)]
        return [*stored, *[v.inputs[0] for v in self.passes[number].reductions]]

    def lookups(
        self, values: Sequence[Instruction], roots: Sequence[Instruction],
        known: Sequence[Instruction], place: Callable[[Instruction], str],
    ) -> list[str]:  # fmt: skip
        """Source lines that load those `known` values which `values` or `roots` use directly.

        `place(v)` is the source text of the memory that holds a known value.
        """
        body, below = self.body, {i for v in values for i in v.inputs} | set(roots)
        return [
            f"const {body.held(v)} {body.name(v)} = ({body.held(v)}){place(v)};"
            for v in body.instructions
            if v in below and v in known
        ]
