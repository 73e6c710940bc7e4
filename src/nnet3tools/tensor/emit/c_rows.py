"""Formulas that reduce rows, in C: a row in stages.

A loop makes the reductions whose inputs are known. Then come the values that are the same for the
whole row, then the loop of the next stage, and so on. The last loop stores.

Loops that add up exp, and loops that store more than the caches hold, are also spelled in vectors
(`NN_WIDE` in prelude.h), for processors whose instructions a compiler does not find by itself:
log-softmax of 2048 x 6000 takes 3.2 ms with them, 4.1 without.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from nnet3tools.tensor.emit.body import CALLS, Body, indented, loop
from nnet3tools.tensor.emit.c import SIMD, C, kernel_text, nest
from nnet3tools.tensor.emit.walk import Walk
from nnet3tools.tensor.formulas import Assignments, Type
from nnet3tools.tensor.formulas.lowered import Instruction, Kind
from nnet3tools.tensor.formulas.stages import RowStages, varying

ADDED = 512
"""float32 numbers of a row that are added up before their sum goes to float64."""

_COSTLY = frozenset({"exp", "log", "tanh", "sigmoid", "pow", "sin", "cos", "logaddexp", "div"})
"""Functions whose values are kept for later stages rather than computed again."""

_EXTREMES = {"row_max": (">", "-"), "row_min": ("<", "")}
"""Comparison, and the sign of infinity that a reduction starts with."""

_VECTOR_CALLS = {n: CALLS[n] for n in ("add", "sub", "mul", "div", "neg", "sqr")}
_VECTOR_CALLS["exp"] = "nn_expv({0})"
"""Functions of vectors, with the same rounding as those of one number (but for exp)."""


@functools.lru_cache(maxsize=512)
def row_kernel(
    assignments: Assignments, walk: Walk, may_keep: bool, added: int = ADDED, chunk: int = 0
) -> str:
    """C text of a kernel for a formula that reduces rows (along the last axis).

    `walk` says how operands are in memory. `may_keep`: a row's values may be kept on the stack.
    Sums of `added` numbers each are float32, the sum of these sums float64. If `chunk` is not 0,
    operands are vectors, and row i is their i-th piece of `chunk` elements.
    """
    rows = _Rows(assignments, walk, may_keep, added)
    width = f"n{walk.axes - 1}"
    if chunk:
        width = f"NN_LEAST({chunk}, {width} - i0 * {chunk})"
    lines = rows.lines(width)
    fence = ["NN_FENCE();"] if rows.streams else []
    return kernel_text(rows.body, [*nest(rows.body, walk.axes - 1, lines, rows.arrays), *fence])


class _Rows:
    """Writes the C lines that compute one row of a formula that reduces rows."""

    def __init__(self, assignments: Assignments, walk: Walk, may_keep: bool, added: int) -> None:
        self._walk, self._may_keep, self._added = walk, may_keep, added
        self.body = Body(walk, C)
        pairs = self.body.assigned(assignments)
        self._needed_values = self.body.needed([root for _, root in pairs])
        self._stages = RowStages(self._needed_values, varying(self._needed_values, walk.varies))
        self._varying = self._stages.varying
        self._stored = [(t, root) for t, root in pairs if walk.varies(t)]
        """Targets that are assigned whole rows, and their values."""
        self._once_stored = [pair for pair in pairs if pair not in self._stored]
        self.arrays = self.body.arrays_of(self._needed_values, pairs)
        self.streams = False
        """Whether stores may bypass the caches."""
        self._kept: dict[Instruction, int] = {}
        """Values that later stages find in an array on the stack, and the stage that makes them."""

    def lines(self, width: str) -> list[str]:
        """All C lines for one row of `width` (C text) elements, to which pointers are set."""
        last = self._stages.last
        if self._may_keep:
            self._keep_costly(last)
        vectors = self._streams(last)
        self.streams = bool(vectors)
        lines = [f"const i64 width = {width};"]
        if self.streams:
            count = " * ".join(f"n{axis}" for axis in range(self._walk.axes))
            lines.append(f"const int is_past = NN_IS_PAST({count});")
        lines += [f"{self.body.held(v)} kept_{self.body.name(v)}[width];" for v in self._kept]
        for stage in range(last):
            lines += self._once(stage)
            lines += self._reduce(stage)
        lines += [*self._once(last), *vectors]
        stores = [self.body.store(*pair) for pair in self._stored]
        roots = [root for _, root in self._stored]
        lines += self._loop(last, roots, stores, begin="first" if self.streams else "0")
        return [*lines, *[self.body.store(*pair) for pair in self._once_stored]]

    def _keep_costly(self, last: int) -> None:
        """Put into `_kept` the values of _COSTLY functions that the loops of several stages need.

        Each value is mapped to the first of these stages. Stages are numbered from 0 to `last`;
        each ends with a loop over the row.
        """
        made: dict[Instruction, int] = {}
        for stage in range(last + 1):
            roots = [v.inputs[0] for v in self._stages.reductions(stage)]
            if stage == last:
                roots = [root for _, root in self._stored]
            for v in self._needed(roots):
                if v in made and v.name in _COSTLY:
                    self._kept.setdefault(v, made[v])
                made.setdefault(v, stage)

    def _needed(self, roots: Sequence[Instruction], stage: int | None = None) -> list[Instruction]:
        """The values, in order, that a loop needs for `roots`, without those equal along the row.

        If a stage before `stage` kept a value in memory, the values it depends on are left out.
        """
        needed: set[Instruction] = set()
        stack = [v for v in roots if v in self._varying]
        while stack:
            v = stack.pop()
            needed.add(v)
            if stage is None or self._kept.get(v, stage) >= stage:
                stack += [i for i in v.inputs if i in self._varying and i not in needed]
        return [v for v in self._needed_values if v in needed]

    def _once(self, stage: int) -> list[str]:
        """C lines for values computed once per row, before the loop that ends stage `stage`."""
        lines = []
        for v in self._stages.once(stage):
            is_wide = v.kind is Kind.CAST and v.type is Type.FLOAT64
            if is_wide and v.inputs[0].name in ("row_sum", "row_mean"):  # not rounded to float32
                lines.append(f"const f64 {self.body.name(v)} = {self._total(v.inputs[0])};")
            else:
                lines += self.body.line(v)
        return lines

    def _total(self, v: Instruction) -> str:
        """A C expression for the value of the row reduction `v`, a sum or mean, in float64."""
        name = self.body.name(v)
        return f"all_{name} / (f64)width" if v.name == "row_mean" else f"all_{name}"

    def _reduce(self, stage: int) -> list[str]:
        """C lines of loop number `stage` over a row, which computes this stage's row reductions."""
        found = self._stages.reductions(stage)
        sums = [v for v in found if v.name not in _EXTREMES]
        lines, adds, after, clauses = list[str](), list[str](), list[str](), list[str]()
        for v in found:
            name, held, value = self.body.name(v), self.body.held(v), self.body.name(v.inputs[0])
            if v in sums:
                lines.append(f"f64 all_{name} = 0.0;")
                adds.append(f"part_{name} += {value};")
                after.append(f"const {held} {name} = ({held})({self._total(v)});")
                clauses.append(f"reduction(+ : part_{name})")
            else:  # NaN is looked for separately: the machine's maximum is four times as fast
                compare, sign = _EXTREMES[v.name]
                lines += [f"{held} all_{name} = {sign}INFINITY;", f"int nan_{name} = 0;"]
                adds.append(f"all_{name} = {value} {compare} all_{name} ? {value} : all_{name};")
                adds.append(f"nan_{name} |= {value} != {value};")
                after.append(f"const {held} {name} = nan_{name} ? NAN : all_{name};")
                clauses.append(f"reduction({v.name[4:]} : all_{name}) reduction(| : nan_{name})")
        roots = [v.inputs[0] for v in found]
        vectors = self._vector_sums(stage, roots, sums)
        begin = "first" if vectors else "i_" if sums else "0"
        inner = self._loop(stage, roots, adds, clauses, begin, bool(sums))
        if vectors:  # mostly nothing is left, and preparing for that takes a tenth of the time
            rest = f"if (first < NN_LEAST(i_ + {self._added}, width)) {{"
            inner = [*vectors, rest, *inner, "}"]
        if sums:
            before = [f"{self.body.held(v)} part_{self.body.name(v)} = 0;" for v in sums]
            flush = [f"all_{n} += part_{n};" for n in map(self.body.name, sums)]
            head = f"for (i64 i_ = 0; i_ < width; i_ += {self._added})"
            inner = loop(head, [*before, *self._fetch(stage, roots), *inner, *flush])
        return [*lines, *inner, *after]

    def _fetch(self, stage: int, roots: Sequence[Instruction]) -> list[str]:
        """C lines that prefetch memory while loop `stage` computes costly functions for `roots`.

        They fetch the next row. Before the last loop they also fetch this row of the targets into
        the second cache: log-softmax of 2048 x 6000 takes 4.2 ms with them, 5.1 without.
        """
        costly = any(v.name in _COSTLY for v in self._needed(roots, stage))
        if stage == 0 or not costly or self._walk.axes < 2:
            return []
        rows = self.body.arrays_of([v for v in self._needed_values if v in self._varying])
        near = [i for i in rows if self._walk.is_contiguous(i)]
        size = self._walk.axes - 2
        head = f"for (i64 i = i_; i < i_ + {self._added}; i += 16) {{"
        fetch = [f"__builtin_prefetch(q{i} + s{i}_{size} + i);" for i in near]
        targets = [*self._stored, *self._once_stored] if stage + 1 == self._stages.last else []
        written = [t for t, _ in targets if self._walk.is_contiguous(t)]
        to_write = [f"__builtin_prefetch(q{t} + i, 1, 2);" for t in written]
        if self.streams and to_write:
            return [head, *indented(fetch), "}", f"if (!is_past) {head}", *indented(to_write), "}"]
        return [head, *indented([*fetch, *to_write]), "}"]

    def _loop(
        self, stage: int, roots: Sequence[Instruction], last: Sequence[str],
        clauses: Sequence[str] = (), begin: str = "0", by_parts: bool = False,
    ) -> list[str]:  # fmt: skip
        """C lines of a loop over a row: compute the values `roots`, then do the lines `last`.

        The loop, number `stage`, loads what earlier stages kept. It begins at element `begin`; with
        `by_parts` it ends after `_added` elements. `clauses` are for OpenMP's simd directive.
        """
        if not last:
            return []
        inner = []
        for v in self._needed(roots, stage):
            name = self.body.name(v)
            if self._kept.get(v, stage) < stage:
                inner.append(f"const {self.body.held(v)} {name} = kept_{name}[i];")
                continue
            inner += self.body.line(v)
            if v in self._kept and self._kept[v] == stage:
                inner.append(f"kept_{name}[i] = {name};")
        end = f"NN_LEAST(i_ + {self._added}, width)" if by_parts else "width"
        head = f"for (i64 i = {begin}; i < {end}; ++i)"
        return [" ".join([SIMD, *clauses]), *loop(head, [*inner, *last])]

    # -- loops in vectors

    def _vectors(self, stage: int, roots: Sequence[Instruction]) -> list[str] | None:
        """C lines that compute `roots` for NN_WIDE elements at a time; None if impossible."""
        lines = []
        for v in self._needed(roots, stage):
            name = self.body.name(v)
            if any(i.type is not Type.FLOAT32 for i in (v, *v.inputs)):
                return None
            if v.kind is Kind.OPERAND:
                if not self._walk.is_contiguous(v.number):
                    return None
                value = f"nn_take(q{v.number} + i)"
            elif self._kept.get(v, stage) < stage:
                value = f"nn_take(kept_{name} + i)"
            elif (call := _VECTOR_CALLS.get(v.name)) is None:
                return None
            else:
                value = call.format(*map(self.body.name, v.inputs))
            lines.append(f"const f32v {name} = {value};")
            if self._kept.get(v) == stage:
                lines.append(f"nn_put(kept_{name} + i, {name});")
        return lines

    def _vector_sums(
        self, stage: int, roots: Sequence[Instruction], sums: Sequence[Instruction]
    ) -> list[str]:
        """C lines that add up a row in vectors; the C variable `first` becomes where they end.

        `roots` are the values to compute, `sums` their reductions. No lines without exp.
        """
        has_exp = any(v.name == "exp" for v in self._needed(roots, stage))
        if not has_exp or len(sums) != len(roots):
            return []
        if (inner := self._vectors(stage, roots)) is None:
            return []
        named = [(self.body.name(v), self.body.name(v.inputs[0])) for v in sums]
        end = f"NN_LEAST(i_ + {self._added}, width)"
        adds = [f"sum_{name} += {value};" for name, value in named]
        return [
            "i64 first = i_;",
            "#ifdef NN_WIDE",
            *[f"f32v sum_{name} = {{0}};" for name, _ in named],
            *loop(
                f"for (; first + NN_WIDE <= {end}; first += NN_WIDE)",
                ["const i64 i = first;", *inner, *adds],
            ),
            *[f"part_{name} += nn_sum(sum_{name});" for name, _ in named],
            "#endif",
        ]

    def _streams(self, last: int) -> list[str]:
        """C lines that store a row in vectors, bypassing the caches, if possible; else no lines.

        The lines store the elements before number `first`, a C variable. `last` is the last stage.
        """
        if len(self._stored) != 1:
            return []
        ((target, root),) = self._stored
        is_vector = self._walk.is_contiguous(target) and self._walk.types[target] is Type.FLOAT32
        inner = self._vectors(last, [root]) if is_vector and root in self._varying else None
        if inner is None:
            return []
        value = self.body.name(root)
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
