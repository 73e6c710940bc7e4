"""Formulas that reduce columns, in CUDA C++: a kernel for each pass over the rows.

A block of (32, 8) threads goes down 32 columns over a slice of the rows, 8 rows at a time. The last
block of these columns adds up the slices in order, then computes and keeps the values of whole
columns that later passes need. Sums are float64. Without reductions to make, the last pass has a
thread for each element.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.emit.body import loop
from nnet3tools.tensor.emit.columns import ColumnPasses
from nnet3tools.tensor.emit.cuda import CUDA, Source, grid_loop, kernel_source
from nnet3tools.tensor.emit.walk import Walk
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.formulas.lowered import Instruction, Kind


@dataclass(frozen=True)
class ColumnKernels:
    """The kernels of a formula that reduces columns.

    First run the kernels `reducing`, which make reductions, then `storing`, which stores
    elements (None: no elements are stored after the last reduction). For each column `num_kept`
    float64 numbers are kept between kernels, and a kernel makes `num_sums` sums for each slice
    of rows. `stored_first` are the operands (from 0) of which the first kernel stores every
    row, `totals` those with one number for each column, which the last reducing kernel stores.

    Parameters are rows, columns and the operands, then `kept` and, of kernels that reduce,
    `partial` (double, the sums), `tickets` (unsigned, one for each 32 columns) and `span`, the
    number of rows of a slice. A kernel that reduces has a grid of (columns / 32, slices) and
    blocks of (32, 8).
    """

    reducing: tuple[Source, ...]
    storing: Source | None
    num_kept: int
    num_sums: int
    stored_first: tuple[int, ...]
    totals: tuple[int, ...]


@functools.lru_cache(maxsize=256)
def column_kernels(assignments: Assignments, walk: Walk) -> ColumnKernels:
    """The CUDA kernels that compute assignments over the rows and columns that `walk` describes."""
    return _Columns(ColumnPasses(assignments, walk, CUDA), assignments.text()).kernels()


class _Columns:
    def __init__(self, plan: ColumnPasses, text: str) -> None:
        self._plan, self._body, self._text = plan, plan.body, text
        kept = [v for number in range(plan.last + 1) for v in plan.kept(number)]
        # reductions, too, may be needed by later passes
        self._kept = {v: k for k, v in enumerate([*plan.all_reductions, *kept])}

    def kernels(self) -> ColumnKernels:
        plan = self._plan
        stored = plan.stored(plan.last)
        return ColumnKernels(
            tuple(self._reducing(number) for number in range(plan.last)),
            self._storing() if stored else None,
            len(self._kept),
            max(len(plan.passes[number].reductions) for number in range(plan.last)),
            () if stored else tuple(t for t, _ in plan.stored(0)),
            tuple(t for t, _ in plan.totals),
        )

    def _kernel(self, what: str, more: Sequence[str], lines: Sequence[str]) -> Source:
        parameters = [*self._body.declare(["n0", "n1"]), "double* kept", *more]
        return kernel_source(what, parameters, lines, self._text)

    def _place(self, v: Instruction) -> str:
        return f"kept[{self._kept[v]} * n1 + i]"

    def _row_lines(self, number: int, extra: Sequence[str]) -> list[str]:
        """CUDA lines that process one row in pass `number`: values, stores, then `extra`."""
        plan, body = self._plan, self._body
        values, stored = plan.row_values(number), plan.stored(number)
        return [
            *[body.row(i, ["r"]) for i in body.arrays_of(values, stored)],
            *[line for v in values for line in body.line(v)],
            *[body.store(*pair) for pair in stored],
            *extra,
        ]

    def _known(self, number: int) -> list[str]:
        """CUDA lines that load results of earlier passes for pass `number` over the rows."""
        plan = self._plan
        roots, values = plan.row_roots(number), plan.row_values(number)
        return plan.lookups(values, roots, plan.known(number), self._place)

    def _storing(self) -> Source:
        last = self._plan.last
        rows = grid_loop("r", "n0", "y", self._row_lines(last, []))
        lines = grid_loop("i", "n1", "x", [*self._known(last), *rows])
        return self._kernel("columns", [], lines)

    def _reducing(self, number: int) -> Source:
        plan, body = self._plan, self._body
        names = [body.name(v) for v in plan.passes[number].reductions]
        inputs = [body.name(v.inputs[0]) for v in plan.passes[number].reductions]
        adds = [f"sum_{n}.add(double({x}));" for n, x in zip(names, inputs, strict=True)]
        down = "for (long long r = begin + threadIdx.y; r < end; r += 8)"
        merge = [f"sum_{n} = nn_columns(sum_{n}, part, threadIdx.x, threadIdx.y);" for n in names]
        places = [f"partial[({{0}} * {len(names)} + {k}) * n1 + i]" for k in range(len(names))]
        pairs = list(zip(names, places, strict=True))
        lines = [
            "__shared__ nn_Sum<double> part[8][33];",
            "__shared__ bool is_last;",
            "const long long i = blockIdx.x * 32LL + threadIdx.x;",
            "const long long begin = blockIdx.y * span, end = nn_min(n0, begin + span);",
            *[f"nn_Sum<double> sum_{n}; sum_{n}.init();" for n in names],
            *loop(
                "if (i < n1)",
                [
                    *self._known(number),
                    "#pragma unroll 4",
                    *loop(down, self._row_lines(number, adds)),
                ],
            ),
            *merge,
            *loop(
                "if (threadIdx.y == 0 && i < n1)",
                [f"{place.format('blockIdx.y')} = sum_{n}.a;" for n, place in pairs],
            ),
            "const bool first = threadIdx.x == 0 && threadIdx.y == 0;",
            "if (!nn_is_last(tickets + blockIdx.x, gridDim.y, first, &is_last)) return;",
            *[f"sum_{n}.init();" for n in names],
            "#pragma unroll 4",
            *loop(
                "for (long long s = threadIdx.y; i < n1 && s < gridDim.y; s += 8)",
                [f"sum_{n}.add({place.format('s')});" for n, place in pairs],
            ),
            *merge,
            *loop("if (threadIdx.y == 0 && i < n1)", self._column_lines(number)),
        ]
        more = ["double* partial", "unsigned* tickets", "long long span"]
        return self._kernel("columns", more, lines)

    def _column_lines(self, number: int) -> list[str]:
        """CUDA lines for one column after pass `number`: reductions, and what depends on them."""
        plan, body, after = self._plan, self._body, number + 1
        values, stored = plan.passes[after].columns, plan.stored_totals(after)
        lines = list[str]()
        for v in plan.passes[number].reductions:
            mean = " / (double)nn_max(n0, 1LL)" if v.name == "col_mean" else ""
            lines.append(f"const double {body.name(v)} = sum_{body.name(v)}.a{mean};")
        made = {*values, *plan.passes[number].reductions}
        earlier = [v for v in plan.known(after) if v not in made]
        lines += plan.lookups(values, [root for _, root in stored], earlier, self._place)
        lines += [body.row(i, ["0"]) for i in body.arrays_of(values, stored)]
        lines += [line for v in values for line in body.line(v)]
        kept = [*plan.passes[number].reductions, *plan.kept(after)]
        lines += [f"{self._place(v)} = {body.name(v)};" for v in kept if v.kind in _KEPT]
        return lines + [body.store(*pair) for pair in stored]


_KEPT = (Kind.REDUCE_COLUMN, Kind.CAST, Kind.APPLY)
