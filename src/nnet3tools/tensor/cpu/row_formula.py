"""Formulas that reduce rows, as C: a row in stages.

A loop for the reductions whose inputs are known, then what is the same for the whole row, and so
on, and a last loop that stores.

Where exp is added up, and for storing what no cache holds, loops are also spelt in vectors
(`NN_WIDE` in prelude.h), for processors whose instructions a compiler does not find by itself:
log-softmax of 2048 x 6000 takes 3.2 ms with them, 4.1 without.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.tensor.cpu.kernels import indented
from nnet3tools.tensor.cpu.spelling import C_TYPES, COSTLY, C
from nnet3tools.tensor.cpu.walks import SIMD, Walk
from nnet3tools.tensor.formulas import Assignments, Type
from nnet3tools.tensor.formulas.lowered import Instruction, Kind, used
from nnet3tools.tensor.formulas.stages import RowStages, varying
from nnet3tools.tensor.source_body import Body

__all__ = ["Rows", "extreme"]

_ADDED = 512
"""float32 numbers of a row that are added up before their sum goes to float64."""


_EXTREMES = {"row_max": (">", "-"), "row_min": ("<", "")}
"""Comparison, and the sign of infinity that a reduction starts with."""


class Rows:
    """The lines that do one row."""

    def __init__(self, assignments: Assignments, found: Walk, may_keep: bool) -> None:
        self._walk, self._may_keep = found, may_keep
        self._body = Body(found.types, C)
        self._roots = [self._body.lower(value) for _, value in assignments.items]
        self._targets = [n - 1 for n in assignments.targets]
        self._instructions = used(self._body.instructions, self._roots)
        self._stages = RowStages(self._instructions, varying(self._instructions, found.varies))
        self._varying = self._stages.varying
        read = [v.number for v in self._instructions if self._is_array(v)]
        self.arrays = list(dict.fromkeys([*self._targets, *read]))
        self.streams = False
        """Whether what is stored may go past the caches."""
        self._kept: dict[Instruction, int] = {}
        """Values that later stages find in an array on the stack, and the stage that makes them."""

    def _is_array(self, v: Instruction) -> bool:
        return v.kind is Kind.OPERAND and not v.type.is_weak

    def lines(self) -> list[str]:
        """All lines, the row's pointers being there."""
        last = self._stages.last
        if self._may_keep:
            self._keep_costly(last)
        targets = list(zip(self._targets, self._roots, strict=True))
        stored = [(t, root) for t, root in targets if self._walk.varies(t)]
        vectors = self._streams(last, stored)
        self.streams = bool(vectors)
        lines = [f"const i64 width = n{self._walk.last};"]
        if self.streams:
            count = " * ".join(f"n{axis}" for axis in range(self._walk.axes))
            lines.append(f"const int is_past = NN_IS_PAST({count});")
        lines += [f"{C_TYPES[v.type]} kept_{self._body.name(v)}[width];" for v in self._kept]
        for stage in range(last):
            lines += self._once(stage)
            lines += self._reduce(stage)
        lines += [*self._once(last), *vectors]
        stores = [self._store(t, root) for t, root in stored]
        roots = [root for _, root in stored]
        lines += self._loop(last, roots, stores, begin="first" if self.streams else "0")
        return [*lines, *[self._store(*each) for each in targets if each not in stored]]

    def _store(self, target: int, root: Instruction) -> str:
        return self._walk.store(target, self._body.name(root), C_TYPES[root.type])

    def _keep_costly(self, last: int) -> None:
        """Find the values that a loop makes at some cost and a later one needs again."""
        made: dict[Instruction, int] = {}
        for stage in range(last + 1):
            for v in self._needed(self._roots_of(stage)):
                if v in made and v.name in COSTLY:
                    self._kept.setdefault(v, made[v])
                made.setdefault(v, stage)

    def _roots_of(self, stage: int) -> list[Instruction]:
        """What the loop at the end of a stage needs."""
        if stage == self._stages.last:
            whole = zip(self._targets, self._roots, strict=True)
            return [root for t, root in whole if self._walk.varies(t)]
        return [v.inputs[0] for v in self._stages.reductions(stage)]

    def _needed(self, roots: Sequence[Instruction], stage: int | None = None) -> list[Instruction]:
        """What varies and has to be computed for these values; not below those kept before."""
        needed: set[Instruction] = set()
        stack = [v for v in roots if v in self._varying]
        while stack:
            v = stack.pop()
            needed.add(v)
            if stage is None or self._kept.get(v, stage) >= stage:
                stack += [i for i in v.inputs if i in self._varying and i not in needed]
        return [v for v in self._instructions if v in needed]

    def _once(self, stage: int) -> list[str]:
        """The values of a stage that are the same for the whole row."""
        lines = []
        for v in self._stages.once(stage):
            if self._is_array(v):
                lines.append(self._walk.load(v.number))
            else:
                lines += self._body.emit(v)
        return lines

    def _reduce(self, stage: int) -> list[str]:
        """One loop that makes the reductions which close a stage."""
        found = self._stages.reductions(stage)
        lines, adds, after = list[str](), list[str](), list[str]()
        clauses: list[str] = []
        for v in found:
            name, held = self._body.name(v), C_TYPES[v.type]
            value = self._body.name(v.inputs[0])
            if v.name in _EXTREMES:
                made = extreme(v.name, name, value, held)
                clauses.append(f"reduction({v.name[4:]} : all_{name}) reduction(| : nan_{name})")
            else:
                divisor = " / (f64)width" if v.name == "row_mean" else ""
                made = (
                    [f"f64 all_{name} = 0.0;"], [f"part_{name} += {value};"],
                    [f"const {held} {name} = ({held})(all_{name}{divisor});"],
                )  # fmt: skip
                clauses.append(f"reduction(+ : part_{name})")
            for to, some in zip((lines, adds, after), made, strict=True):
                to += some
        sums = [v for v in found if v.name not in _EXTREMES]
        roots = [v.inputs[0] for v in found]
        vectors = self._vector_sums(stage, roots, sums)
        begin = "first" if vectors else "i_" if sums else "0"
        loop = self._loop(stage, roots, adds, clauses, begin, bool(sums))
        if vectors:  # mostly nothing is left, and preparing for that takes a tenth of the time
            loop = [*vectors, f"if (first < NN_LEAST(i_ + {_ADDED}, width)) {{", *loop, "}"]
        if sums:
            before = [f"{C_TYPES[v.type]} part_{self._body.name(v)} = 0;" for v in sums]
            flush = [f"all_{n} += part_{n};" for n in map(self._body.name, sums)]
            head = f"for (i64 i_ = 0; i_ < width; i_ += {_ADDED}) {{"
            loop = [head, *indented([*before, *self._fetch(stage, roots), *loop, *flush]), "}"]
        return [*lines, *loop, *after]

    def _fetch(self, stage: int, roots: Sequence[Instruction]) -> list[str]:
        """Lines that fetch what is wanted next while a row is computed with at some cost.

        That are the next row, and before the last loop also the lines that this one will be written
        to, as far as the second cache: log-softmax of 2048 x 6000 takes 4.2 ms with them, 5.1
        without.
        """
        costly = any(v.name in COSTLY for v in self._needed(roots, stage))
        if stage == 0 or not costly or self._walk.axes < 2:
            return []
        rows = [v.number for v in self._instructions if self._is_array(v) and v in self._varying]
        near = [i for i in rows if self._walk.letters[i] == "1"]
        size = self._walk.axes - 2
        head = f"for (i64 i = i_; i < i_ + {_ADDED}; i += 16) {{"
        fetch = [f"__builtin_prefetch(q{i} + s{i}_{size} + i);" for i in near]
        written = [t for t in self._targets if self._walk.letters[t] == "1"]
        to_write = [f"__builtin_prefetch(q{t} + i, 1, 2);" for t in written]
        if stage + 1 < self._stages.last:
            to_write = []
        if self.streams and to_write:
            return [head, *indented(fetch), "}", f"if (!is_past) {head}", *indented(to_write), "}"]
        return [head, *indented([*fetch, *to_write]), "}"]

    def _loop(
        self, stage: int, roots: Sequence[Instruction], last: Sequence[str],
        clauses: Sequence[str] = (), begin: str = "0", by_parts: bool = False,
    ) -> list[str]:  # fmt: skip
        """A loop over the row (or a part of it) that computes what varies, then does `last`."""
        if not last:
            return []
        inner = []
        for v in self._needed(roots, stage):
            name = self._body.name(v)
            if self._is_array(v):
                inner.append(self._walk.load(v.number))
            elif self._kept.get(v, stage) < stage:
                inner.append(f"const {C_TYPES[v.type]} {name} = kept_{name}[i];")
            else:
                inner += self._body.emit(v)
                if v in self._kept and self._kept[v] == stage:
                    inner.append(f"kept_{name}[i] = {name};")
        end = f"NN_LEAST(i_ + {_ADDED}, width)" if by_parts else "width"
        head = f"for (i64 i = {begin}; i < {end}; ++i) {{"
        return [" ".join([SIMD, *clauses]), head, *indented([*inner, *last]), "}"]

    # -- loops in vectors

    def _vectors(self, stage: int, roots: Sequence[Instruction]) -> list[str] | None:
        """The lines that compute what varies, NN_WIDE numbers at a time; None if that cannot be."""
        lines = []
        for v in self._needed(roots, stage):
            name = self._body.name(v)
            if any(i.type is not Type.FLOAT32 for i in (v, *v.inputs)):
                return None
            if self._is_array(v):
                if self._walk.letters[v.number] != "1":
                    return None
                lines.append(f"const f32v {name} = nn_take(q{v.number} + i);")
            elif self._kept.get(v, stage) < stage:
                lines.append(f"const f32v {name} = nn_take(kept_{name} + i);")
            elif (call := VECTOR_CALLS.get(v.name)) is None:
                return None
            else:
                lines.append(f"const f32v {name} = {call.format(*map(self._body.name, v.inputs))};")
                if v in self._kept:
                    lines.append(f"nn_put(kept_{name} + i, {name});")
        return lines

    def _vector_sums(
        self, stage: int, roots: Sequence[Instruction], sums: Sequence[Instruction]
    ) -> list[str]:
        """What adds up most of a part of a row, where exp is; the rest begins at `first`."""
        has_exp = any(v.name == "exp" for v in self._needed(roots, stage))
        if not has_exp or len(sums) != len(roots):
            return []
        if (inner := self._vectors(stage, roots)) is None:
            return []
        named = [(self._body.name(v), self._body.name(v.inputs[0])) for v in sums]
        return [
            "i64 first = i_;",
            "#ifdef NN_WIDE",
            *[f"f32v sum_{name} = {{0}};" for name, _ in named],
            f"for (; first + NN_WIDE <= NN_LEAST(i_ + {_ADDED}, width); first += NN_WIDE) {{",
            *indented(["const i64 i = first;", *inner]),
            *indented([f"sum_{name} += {value};" for name, value in named]),
            "}",
            *[f"part_{name} += nn_sum(sum_{name});" for name, _ in named],
            "#endif",
        ]

    def _streams(self, last: int, stored: Sequence[tuple[int, Instruction]]) -> list[str]:
        """What stores most of a row where that is to go past the caches; the rest is at `first`."""
        if len(stored) != 1:
            return []
        ((target, root),) = stored
        is_vector = self._walk.letters[target] == "1" and self._walk.types[target] is Type.FLOAT32
        inner = self._vectors(last, [root]) if is_vector and root in self._varying else None
        if inner is None:
            return []
        value = self._body.name(root)
        return [
            "i64 first = 0;",
            "#ifdef NN_WIDE",
            "if (is_past && width >= NN_WIDE) {",
            f"  first = nn_before_line(q{target});",
            "  {",
            *indented(["const i64 i = 0;", *inner, f"nn_put_some(q{target}, {value}, first);"], 2),
            "  }",
            "  for (; first + NN_WIDE <= width; first += NN_WIDE) {",
            *indented(["const i64 i = first;", *inner, f"nn_stream(q{target} + i, {value});"], 2),
            "  }",
            "}",
            "#endif",
        ]


VECTOR_CALLS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "sqr": "{0} * {0}", "exp": "nn_expv({0})",
}  # fmt: skip
"""Functions as vectors have them, of the same rounding as C's of one number (but for exp)."""


def extreme(function: str, name: str, value: str, held: str) -> tuple[list[str], ...]:
    """Before, within and after a loop that finds the largest or smallest; NaN if there is any.

    With NaN looked for aside, a compiler takes the machine's own maximum: four times as fast.
    """
    compare, sign = _EXTREMES[function]
    return (
        [f"{held} all_{name} = {sign}INFINITY;", f"int nan_{name} = 0;"],
        [
            f"all_{name} = {value} {compare} all_{name} ? {value} : all_{name};",
            f"nan_{name} |= {value} != {value};",
        ],
        [f"const {held} {name} = nan_{name} ? NAN : all_{name};"],
    )
