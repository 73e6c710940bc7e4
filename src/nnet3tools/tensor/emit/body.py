"""A formula's instructions as lines of C or C++, a named constant each, in a dialect."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.emit.walk import Access, Walk
from nnet3tools.tensor.formulas import Assignments, Type
from nnet3tools.tensor.formulas.lowered import Instruction, Kind, Lowering, Target, used

CALLS: dict[str, str] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "sqr": "{0} * {0}", "round": "rint{f}({0})", "floor": "floor{f}({0})", "ceil": "ceil{f}({0})",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "and": "{0} && {1}", "or": "{0} || {1}", "not": "!{0}",
    "where": "{0} ? {1} : {2}", "sqrt": "sqrt{f}({0})", "sin": "sin{f}({0})", "cos": "cos{f}({0})",
    "pow": "pow{f}({0}, {1})", "logaddexp": "nn_logaddexp({0}, {1})",
}  # fmt: skip
"""Function -> its text in all dialects; {f} is the suffix of its floats: f for float32, or none."""


@dataclass(frozen=True)
class Dialect:
    """How C or CUDA C++ spells types, values, functions and parameters of kernels.

    `types` are those of computed values, `stored_types` of array elements. `calls` has
    functions as format texts, such as "{0} + {1}". `size` is the type of sizes; `integer`,
    `parameters` and the *_half are format texts, too.
    """

    types: Mapping[Type, str]
    """The type of a value while it is computed with."""
    stored_types: Mapping[Type, str]
    """The type of an array's elements."""
    calls: Mapping[str, str]
    """Function -> its text, as CALLS."""
    target: Target
    size: str
    """The type of sizes and strides."""
    integer: str
    """An integer constant: {0} is its type, {1} the number."""
    infinity: str
    nan: str
    parameters: Mapping[str, str]
    """size, number, number_at and pointer -> a parameter {name}, number {k}, of {type}."""
    rounded_half: str = ""
    """The float {0} rounded to 16 bits; empty where there is no such type, as below."""
    loaded_half: str = ""
    stored_half: str = ""

    def literal(self, value: float, held: str) -> str:
        """Source text of the constant `value` in the type `held`, a name such as "float"."""
        single = self.types[Type.FLOAT32]
        if held not in (single, self.types[Type.FLOAT64]):
            return self.integer.format(held, int(value))
        if held == single:
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        if math.isnan(value) or math.isinf(value):
            text = f"(({held}){self.nan if math.isnan(value) else self.infinity})"
            return f"(-{text})" if value < 0 else text
        return f"({value!r}{'f' if held == single else ''})"

    def converted(self, value: str, held: str, to: str) -> str:
        """Source text that converts text `value` from the type spelled `held` to that of `to`."""
        if held == to:
            return value
        return f"({value} != 0)" if to == self.types[Type.BOOL] else f"({to})({value})"

    def stored(self, value: str, held: str, to: Type) -> str:
        """Source text that converts text `value`, of the type spelled `held`, to an array type."""
        if to is Type.FLOAT16:
            return self.stored_half.format(self.converted(value, held, self.types[Type.FLOAT32]))
        return self.converted(value, held, self.types[to])


class Body:
    """Writes the lines of C or CUDA C++ (the dialect) that compute the Instructions of formulas.

    Names in the text: operand i (from 0) is the variable `x{i + 1}`; if it is an array, its first
    element is at `p{i}`, the current row of the innermost axis at `q{i}`; its strides are
    `s{i}_{axis}`.
    """

    def __init__(self, walk: Walk, dialect: Dialect) -> None:
        self.types, self.dialect, self.walk = walk.types, dialect, walk
        lowering = Lowering(walk.types, dialect.target)
        self.lower = lowering.lower
        self.instructions = lowering.instructions
        self.places: dict[int, str] = {}
        """Operand -> the text that stands for its element, where that is not in memory."""
        self._names: dict[Instruction, str] = {}

    def assigned(self, assignments: Assignments) -> list[tuple[int, Instruction]]:
        """(operand number, Instruction that computes the value) for each assignment."""
        return [(t.number - 1, self.lower(value)) for t, value in assignments.items]

    def name(self, v: Instruction) -> str:
        """Source text for a computed value: the name of its variable, or a literal."""
        if v.kind is Kind.OPERAND:
            return f"x{v.number + 1}"
        if v.kind is Kind.CONSTANT:
            return self.dialect.literal(v.value, self.held(v))
        return self._names.setdefault(v, f"v{len(self._names)}")

    def held(self, v: Instruction) -> str:
        """The type of a value's variable, as spelled in the dialect."""
        return self.dialect.types[v.type]

    def is_loaded(self, v: Instruction) -> bool:
        """Whether a value is an array operand, which is loaded from memory."""
        return v.kind is Kind.OPERAND and self.walk.is_array(v.number)

    def line(self, v: Instruction, index: str = "i") -> list[str]:
        """The line that computes value `v` at element `index` of a row; none for plain numbers."""
        if self.is_loaded(v):
            return [self.load(v.number, self.place(v.number, index))]
        if v.kind in (Kind.OPERAND, Kind.CONSTANT):
            return []
        names = [self.name(i) for i in v.inputs]
        if v.kind is Kind.CAST:
            value = self.dialect.converted(names[0], self.held(v.inputs[0]), self.held(v))
            if v.type is Type.FLOAT16:
                value = self.dialect.rounded_half.format(value)
        elif (call := self.dialect.calls.get(v.name)) is not None:
            single = v.inputs[0].type in (Type.FLOAT32, Type.FLOAT16)
            value = call.format(*names, f="f" if single else "")
        else:
            raise ProgramError(f"{v.name} is of whole rows or columns")
        return [f"const {self.held(v)} {self.name(v)} = {value};"]

    def lines(self, roots: Sequence[Instruction], known: Collection[Instruction] = ()) -> list[str]:
        """Lines that compute `roots` at a row's element `i`; `known` values have variables."""
        return [line for v in self.needed(roots, known) for line in self.line(v)]

    def needed(
        self, roots: Sequence[Instruction], known: Collection[Instruction] = ()
    ) -> list[Instruction]:
        """The values that must be computed for `roots`, in order, without those in `known`."""
        return [v for v in used(self.instructions, roots, known) if v not in known]

    def arrays_of(
        self, values: Sequence[Instruction], stored: Sequence[tuple[int, Instruction]] = ()
    ) -> list[int]:
        """The numbers, each once, of operands that are `stored`, and of arrays among `values`.

        `stored` has (operand number, value) pairs.
        """
        loaded = (v.number for v in values if self.is_loaded(v))
        return list(dict.fromkeys([*(target for target, _ in stored), *loaded]))

    # -- operands in memory

    def place(self, i: int, index: str = "i") -> str:
        """Source text of the element `index` in the current row of operand `i`."""
        if i in self.places:
            return self.places[i]
        access = self.walk.accesses[i][-1]
        if access is Access.STRIDED:
            index = f"{index} * s{i}_{self.walk.axes - 1}"
        return f"q{i}[{'0' if access is Access.REPEATED else index}]"

    def load(self, i: int, place: str) -> str:
        """The line that loads operand `i` from `place`, the text of an element."""
        if self.types[i] is Type.FLOAT16:
            place = self.dialect.loaded_half.format(place)
        return f"const {self.dialect.types[self.types[i]]} x{i + 1} = {place};"

    def store(self, i: int, root: Instruction, index: str = "i") -> str:
        """The line that stores the value `root` in element `index` of operand i's current row."""
        value = self.dialect.stored(self.name(root), self.held(root), self.types[i])
        return f"{self.place(i, index)} = {value};"

    def row(self, i: int, indexes: Sequence[str]) -> str:
        """The line that points the variable q{i} to operand i's row with these outer indexes."""
        steps = zip(indexes, self.walk.accesses[i], strict=False)
        terms = [
            f"{index} * s{i}_{axis}"
            for axis, (index, access) in enumerate(steps)
            if access is Access.STRIDED
        ]
        spelled = self.dialect.stored_types[self.types[i]]
        return f"{spelled} *const q{i} = {' + '.join([f'p{i}', *terms])};"

    # -- parameters

    def declare(self, sizes: Sequence[str]) -> list[str]:
        """Parameters of a kernel: `sizes`, then for each operand address and strides, or number."""
        found: list[str] = []

        def add(kind: str, name: str, spelled: str = "") -> None:
            text = self.dialect.parameters[kind]
            found.append(text.format(k=len(found), name=name, type=spelled))

        for name in sizes:
            add("size", name)
        for i, accesses in enumerate(self.walk.accesses):
            if accesses[0] is Access.NUMBER_IN_MEMORY:
                add("number_at", f"x{i + 1}")
            elif accesses[0] is Access.NUMBER:
                add("size" if self.types[i] is Type.WEAK_INT else "number", f"x{i + 1}")
            else:
                add("pointer", f"p{i}", self.dialect.stored_types[self.types[i]])
                for axis, access in enumerate(accesses):
                    if access is Access.STRIDED:
                        add("size", f"s{i}_{axis}")
        return found


def indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    """The lines, each with two spaces for each level of `depth` in front."""
    return ["  " * depth + line for line in lines]


def loop(head: str, lines: Sequence[str]) -> list[str]:
    """The lines of a loop or block in braces; `head` is the text before the brace."""
    return [f"{head} {{", *indented(lines), "}"]
