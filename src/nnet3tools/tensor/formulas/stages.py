"""The loops that a formula with reductions needs: passes over all rows, and stages of each row.

Without column reductions there is one pass. Each column reduction that depends on others needs
another pass. Within a pass every row is done by itself, in stages: a loop over the row for the
reductions whose inputs are known, the values that follow from these reductions, and so on. The
last loop over the row stores elements, or adds them to the column reductions of the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.formulas.lowered import Instruction, Kind, used


def varying(
    instructions: Sequence[Instruction],
    varies: Callable[[int], bool],
    constant_kinds: Collection[Kind] = (Kind.REDUCE_ROW,),
) -> set[Instruction]:
    """The instructions of a formula whose values differ within a row.

    `varies(number)` says whether the array operand with this number (from 0) differs within a row.
    Values of `constant_kinds` do not differ, whatever their inputs do.
    """
    found = set[Instruction]()
    for v in instructions:
        if v.kind is Kind.OPERAND:
            if not v.type.is_weak and varies(v.number):
                found.add(v)
        elif v.kind not in constant_kinds and any(i in found for i in v.inputs):
            found.add(v)
    return found


class RowStages:
    """Divides a formula's computation of one row into stages, each ended by a loop over the row.

    The loop makes row reductions. `instructions` are the values to compute for the row, in order;
    other inputs of theirs are known before. `varying` are those that differ within the row.
    ProgramError if a formula reduces rows of a value that does not differ in a row.
    """

    def __init__(
        self, instructions: Sequence[Instruction], varying: Collection[Instruction]
    ) -> None:
        self.varying = varying
        """The values that differ within a row: they are computed in loops over the row."""
        self.instructions = instructions
        self._loops: dict[Instruction, int] = {}
        """The number of loops over the row before a value is known."""
        for v in instructions:
            before = max((self._loops.get(i, 0) for i in v.inputs), default=0)
            self._loops[v] = before + (v.kind is Kind.REDUCE_ROW)
            if v.kind is Kind.REDUCE_ROW and v.inputs[0] not in self.varying:
                raise ProgramError("a formula reduces rows of an operand that has none")
        self.last = max(self._loops.values(), default=0)
        """The number of the last stage: the number of loops that make row reductions."""

    def reductions(self, stage: int) -> list[Instruction]:
        """The row reductions whose values the loop at the end of stage `stage` completes."""
        return [v for v, n in self._loops.items() if v.kind is Kind.REDUCE_ROW and n == stage + 1]

    def once(self, stage: int) -> list[Instruction]:
        """The values that stage number `stage` computes once for each row, before its loop."""
        now = [v for v, n in self._loops.items() if n == stage and v.kind is not Kind.REDUCE_ROW]
        return [v for v in now if v not in self.varying]


@dataclass(frozen=True)
class Pass:
    """One pass over all rows of the operands.

    Before it, the values `columns` are computed, once for each column: they are the same for all
    rows, and follow from the column reductions of earlier passes and from operands, which are among
    them. `rows` are the stages of each row; empty in a last pass that stores nothing in every row.
    `reductions` are the column reductions that the pass makes; none in the last pass.
    """

    columns: tuple[Instruction, ...]
    rows: RowStages
    reductions: tuple[Instruction, ...]


def passes(
    instructions: Sequence[Instruction],
    roots: Sequence[Instruction],
    varies_within_row: Callable[[int], bool],
    varies_along_rows: Callable[[int], bool],
) -> list[Pass]:
    """The passes over rows that compute the values `roots` of a formula's `instructions`.

    `varies_within_row(number)` says whether the array operand with this number (from 0) differs
    within a row, `varies_along_rows(number)` whether it differs from row to row. Roots that differ
    from row to row are stored by the last pass, the others before it begins. ProgramError if a
    formula reduces columns of a value that is the same for all rows, or rows of a value that
    follows from column reductions alone.
    """
    needed = used(instructions, roots)
    within = varying(needed, varies_within_row)
    along = varying(needed, varies_along_rows, (Kind.REDUCE_COLUMN,))
    number: dict[Instruction, int] = {}
    """The number of passes before a value is known."""
    for v in needed:
        number[v] = max((number[i] for i in v.inputs), default=0)
        if v.kind is Kind.REDUCE_COLUMN:
            number[v] += 1
            if v.inputs[0] not in along:
                raise ProgramError("a formula reduces columns of an operand that has one row")
    last = max(number.values(), default=0)
    found = []
    for index in range(last + 1):
        totals = [v for v in needed if v.kind is Kind.REDUCE_COLUMN and number[v] == index + 1]
        wanted = [v.inputs[0] for v in totals]
        if index == last:
            wanted = [v for v in roots if v in along]
        alone = [v for v in roots if v not in along] if index == last else []
        known = {v for v in needed if v not in along and 0 < number[v] <= index}
        now = {v for v in known if number[v] == index and v.kind is not Kind.REDUCE_COLUMN}
        made = used(needed, [*now, *alone], known - now)
        columns = [v for v in made if v not in known or v in now]
        if any(v.kind is Kind.REDUCE_ROW for v in columns):
            raise ProgramError("a formula reduces rows of a value that is the same for all rows")
        rows = RowStages([v for v in used(needed, wanted, known) if v not in known], within)
        found.append(Pass(tuple(columns), rows, tuple(totals)))
    return found
