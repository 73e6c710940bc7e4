"""Typed instructions over operands: the form of a formula from which every backend emits code.

Lowering settles types, makes conversions explicit, writes out functions that a backend has no
instruction for, folds constants and shares common subexpressions. A backend only says how each
instruction is spelt.

float16 is computed in float32 and rounded where it is stored; plain numbers are computed in 64 bits
until they meet an array's type.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.tensor.formulas.expr import Apply, Cast, Constant, Expr, Number, Placeholder
from nnet3tools.tensor.formulas.functions import COLUMN_REDUCTIONS, ROW_REDUCTIONS, Function
from nnet3tools.tensor.formulas.simplify import simplify
from nnet3tools.tensor.formulas.types import Rule, Type, compute_type
from nnet3tools.tensor.registry import UnsupportedOperator

_COMMUTATIVE = frozenset({"add", "mul", "max", "min", "eq", "ne", "and", "or"})
_TO_INTEGERS = frozenset({"round", "floor", "ceil"})

Definition = Callable[..., Expr]


class Kind(enum.Enum):
    """The kinds of instructions: operands, constants, casts, functions and reductions."""

    OPERAND = "an operand: an array, or a plain number if its type is weak"
    CONSTANT = "a number of the formula"
    CAST = "its input as another type"
    APPLY = "a function of its inputs, which have the type it computes in"
    REDUCE_ROW = "one value for each row of its input (along the last axis)"
    REDUCE_COLUMN = "one value of 64 bits for each column of its input (along the other axes)"

    __hash__ = object.__hash__  # that of Enum is Python code


@dataclass(eq=False, frozen=True, slots=True)
class Instruction:
    """One value of a formula that was translated for a backend; equal instructions are one object.

    `name` is the function of APPLY, REDUCE_ROW and REDUCE_COLUMN; `number` the position, from 0, of
    an OPERAND; `value` the number of a CONSTANT, exactly as its type holds it.
    """

    kind: Kind
    type: Type
    inputs: tuple[Instruction, ...] = ()
    name: str = ""
    number: int = 0
    value: Number = 0


@dataclass(frozen=True)
class Target:
    """A backend into whose instructions formulas are translated; it has the `functions` itself.

    `rewrite(function, type)` returns the backend's own definition of a function by others, or None.
    Other functions are replaced by their general definitions.
    """

    device: str
    functions: Collection[str]
    rewrite: Callable[[str, Type], Definition | None] = lambda name, compute: None


@dataclass
class Lowering:
    """Lowers expressions to Instructions for `target`; equal values are one Instruction.

    types[0] is the type of the operand _1 of the expressions, types[1] that of _2, and so on. A
    weak type says that the operand is a plain number, not an array.
    """

    types: Sequence[Type]
    target: Target
    instructions: list[Instruction] = field(default_factory=list)
    """All instructions, inputs before the instructions that use them."""
    _known: dict[Any, Instruction] = field(default_factory=dict)

    def lower(self, expr: Expr) -> Instruction:
        """The instruction that computes an expression's value; it is appended to `instructions`."""
        operands = [self._share(Kind.OPERAND, t, number=i) for i, t in enumerate(self.types)]
        return self._lower(simplify(expr), operands)

    def cast(self, given: Instruction, to: Type) -> Instruction:
        """The instruction that converts `given` to a type; `given` itself if it has that type."""
        if given.type is to:
            return given
        if given.kind is Kind.CONSTANT:
            return self._constant(given.value, to)
        return self._share(Kind.CAST, to, (given,))

    def _lower(self, expr: Expr, operands: Sequence[Instruction]) -> Instruction:
        done: dict[Expr, Instruction] = {}
        for node in expr.walk():
            inputs = [done[argument] for argument in node.arguments]
            if isinstance(node, Placeholder):
                if node.number > len(operands):
                    raise ProgramError(
                        f"a formula uses _{node.number} but has {len(operands)} operands"
                    )
                done[node] = operands[node.number - 1]
            elif isinstance(node, Constant):
                done[node] = self._constant(node.value, node.type({}))
            elif isinstance(node, Cast):
                done[node] = self.cast(inputs[0], node.to)
            else:
                assert isinstance(node, Apply)
                done[node] = self._apply(node.function, inputs)
        return done[expr]

    def _apply(self, function: Function, given: Sequence[Instruction]) -> Instruction:
        compute = compute_type(function.rule, [v.type for v in given])
        if compute is Type.FLOAT16:
            compute = Type.FLOAT32
        wanted = [Type.BOOL if function.rule is Rule.LOGIC else compute] * len(given)
        if function.rule is Rule.CHOOSE:
            wanted[0] = Type.BOOL
        inputs = [self.cast(v, t) for v, t in zip(given, wanted, strict=True)]
        if function.name in ROW_REDUCTIONS or function.name in COLUMN_REDUCTIONS:
            if compute.is_weak:
                raise ProgramError(f"{function.name} of a plain number")
            by_row = function.name in ROW_REDUCTIONS
            kind, to = (
                (Kind.REDUCE_ROW, compute) if by_row else (Kind.REDUCE_COLUMN, Type.WEAK_FLOAT)
            )
            return self._share(kind, to, tuple(inputs), function.name)
        is_truth = function.rule in (Rule.COMPARE, Rule.LOGIC)
        result = Type.BOOL if is_truth else compute
        definition = self.target.rewrite(function.name, compute)
        if definition is None and function.name not in self.target.functions:
            definition = function.definition
            if definition is None:
                raise UnsupportedOperator(function.name, compute.value, self.target.device)
        if definition is not None:
            holders = map(Placeholder, range(1, len(inputs) + 1))
            return self.cast(self._lower(definition(*holders), inputs), result)
        if function.name in _TO_INTEGERS and not compute.is_float:
            return inputs[0]
        if function.name in _COMMUTATIVE:
            inputs.sort(key=lambda v: v.kind is Kind.CONSTANT)
        return self._share(Kind.APPLY, result, tuple(inputs), function.name)

    def _constant(self, value: Number, to: Type) -> Instruction:
        with np.errstate(all="ignore"):
            held: Number = np.asarray(value).astype(to.held).item()
        return self._share(Kind.CONSTANT, to, value=held)

    def _share(
        self, kind: Kind, to: Type, inputs: tuple[Instruction, ...] = (), name: str = "",
        number: int = 0, value: Number = 0,
    ) -> Instruction:  # fmt: skip
        # repr tells 0.0 from -0.0, and makes every nan the same
        key = kind, to, inputs, name, number, repr(value)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = Instruction(kind, to, inputs, name, number, value)
            self.instructions.append(known)
        return known


V = TypeVar("V")


def used(values: Sequence[V], roots: Sequence[V], known: Collection[V] = ()) -> list[V]:
    """The `roots` and all of `values` on which they depend (`inputs`), in the order of `values`.

    What `known` values depend on is left out.
    """
    needed: set[Any] = set(roots)
    for value in reversed(values):
        if value in needed and value not in known:
            needed.update(value.inputs)  # type: ignore[attr-defined]
    return [value for value in values if value in needed]
