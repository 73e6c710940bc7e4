"""A formula's instructions as lines of C or C++, a constant each, in a backend's dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.formulas import Expr, Type
from nnet3tools.tensor.formulas.lowered import Instruction, Kind, Lowering, Target, used

__all__ = ["Body", "Dialect"]


@dataclass(frozen=True)
class Dialect:
    """How a backend spells values and functions."""

    types: Mapping[Type, str]
    """The type of a value while it is computed with."""
    calls: Mapping[str, str]
    """Function -> its text with places {0}, {1}, ... and {f}, the suffix of its floats."""
    literal: Callable[[float, str], str]
    """A constant of a type, exact."""
    converted: Callable[[str, str, str], str]
    """A value of a type as another type."""
    target: Target
    half: str = ""
    """A float with place {0}, rounded to 16 bits; empty where there is no such type."""


@dataclass
class Body:
    """Lines that compute expressions; `types` are those of the operands, from `_1` on.

    Operands are the variables `x1`, `x2`, ... of their computing types.
    """

    types: Sequence[Type]
    dialect: Dialect
    lines: list[str] = field(default_factory=list)
    _names: dict[Instruction, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lowering = Lowering(self.types, self.dialect.target)
        self.instructions = self._lowering.instructions
        self.lower = self._lowering.lower

    def add(self, expr: Expr) -> tuple[str, str]:
        """Name and type of the variable that holds an expression's value."""
        root = self.lower(expr)
        for instruction in used(self.instructions, [root]):
            if instruction not in self._names:
                self.lines += self.emit(instruction)
        return self.name(root), self.dialect.types[root.type]

    def name(self, instruction: Instruction) -> str:
        """The variable, or the text of the number, that stands for an instruction's value."""
        if instruction.kind is Kind.OPERAND:
            return f"x{instruction.number + 1}"
        if instruction.kind is Kind.CONSTANT:
            return self.dialect.literal(instruction.value, self.dialect.types[instruction.type])
        return self._names.setdefault(instruction, f"v{len(self._names)}")

    def emit(self, instruction: Instruction) -> list[str]:
        """The line that computes an instruction, if it needs one."""
        if instruction.kind in (Kind.OPERAND, Kind.CONSTANT):
            return []
        types = self.dialect.types
        held_in, held = types[instruction.type], types[instruction.inputs[0].type]
        given = [self.name(v) for v in instruction.inputs]
        if instruction.kind is Kind.CAST:
            value = self.dialect.converted(given[0], held, held_in)
            if instruction.type is Type.FLOAT16:
                value = self.dialect.half.format(value)
        elif (call := self.dialect.calls.get(instruction.name)) is not None:
            single = instruction.inputs[0].type in (Type.FLOAT32, Type.FLOAT16)
            value = call.format(*given, f="f" if single else "")
        else:
            raise ProgramError(f"{instruction.name} is of whole rows")
        return [f"const {held_in} {self.name(instruction)} = {value};"]
