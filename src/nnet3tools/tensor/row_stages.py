"""Formulas that reduce rows, in stages: what each loop over a row reduces, and what comes between.

A stage is what is known for the whole row by then, and a loop whose reductions the next stage
begins with. After the last stage comes a loop that stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.formulas.lowered import Instruction, Kind

__all__ = ["RowStages", "varying"]


def varying(instructions: Sequence[Instruction], varies: Callable[[int], bool]) -> set[Instruction]:
    """The values that differ within a row, as the operands do whose numbers `varies` names."""
    found = set[Instruction]()
    for v in instructions:
        if v.kind is Kind.OPERAND:
            if not v.type.is_weak and varies(v.number):
                found.add(v)
        elif v.kind is not Kind.REDUCE and any(i in found for i in v.inputs):
            found.add(v)
    return found


class RowStages:
    """Which instructions belong to which stage; `varying` are those that belong in the loops.

    ProgramError if a formula reduces what does not vary.
    """

    def __init__(self, instructions: Sequence[Instruction], varies: Callable[[int], bool]) -> None:
        self.varying = varying(instructions, varies)
        self._loops: dict[Instruction, int] = {}
        """The number of loops before a value is known."""
        for v in instructions:
            before = max((self._loops[i] for i in v.inputs), default=0)
            self._loops[v] = before + (v.kind is Kind.REDUCE)
            if v.kind is Kind.REDUCE and v.inputs[0] not in self.varying:
                raise ProgramError("a formula reduces rows of an operand that has none")
        self.last = max(self._loops.values())

    def reductions(self, stage: int) -> list[Instruction]:
        """What the loop at the end of a stage reduces."""
        return [v for v, n in self._loops.items() if v.kind is Kind.REDUCE and n == stage + 1]

    def once(self, stage: int) -> list[Instruction]:
        """What is computed once a row in a stage; its reductions are there."""
        return [
            v
            for v, n in self._loops.items()
            if n == stage and v.kind is not Kind.REDUCE and v not in self.varying
        ]
