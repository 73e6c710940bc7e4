"""C for CPUs: the dialect, and the kernel of a formula without reductions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from nnet3tools.tensor.emit.body import CALLS, Body, Dialect, indented, loop
from nnet3tools.tensor.emit.walk import Walk
from nnet3tools.tensor.formulas import Assignments, Expr, Type
from nnet3tools.tensor.formulas.lowered import Target
from nnet3tools.tensor.formulas.stages import varying
from nnet3tools.tensor.plain.rewrites import rewrite

SIMD = "#pragma omp simd"

_TYPES = {
    Type.BOOL: "int", Type.INT32: "s32", Type.UINT32: "u32", Type.FLOAT32: "f32",
    Type.FLOAT64: "f64", Type.WEAK_INT: "i64", Type.WEAK_FLOAT: "f64",
}  # fmt: skip
"""There is no float16: NumPy calculates with 16-bit floats."""

_CALLS = CALLS | {
    "abs": "fabs{f}({0})", "sgn": "nn_sgn{f}({0})", "max": "nn_max{f}({0}, {1})",
    "min": "nn_min{f}({0}, {1})", "exp": "nn_exp{f}({0})", "log": "nn_log{f}({0})",
    "tanh": "nn_tanh{f}({0})", "erf": "erf({0})", "sigmoid": "nn_sigmoid{f}({0})",
}  # fmt: skip


def _rewrite(name: str, compute: Type) -> Callable[..., Expr] | None:
    """C's faster definition of `name` in type `compute`, a function of expressions, or None."""
    single = compute is Type.FLOAT32 and name in ("erf", "logaddexp")
    return rewrite(name, compute) if single else None


C = Dialect(
    types=_TYPES,
    stored_types=_TYPES | {Type.BOOL: "u8"},
    calls=_CALLS,
    target=Target("native", frozenset(_CALLS), _rewrite),
    size="i64",
    integer="(({0})INT64_C({1}))",
    infinity="INFINITY",
    nan="NAN",
    parameters={
        "size": "const i64 {name} = w[{k}].i;",
        "number": "const f64 {name} = w[{k}].f;",
        "number_at": "const f64 {name} = *(const f64 *)w[{k}].p;",
        "pointer": "{type} *const {name} = ({type} *)w[{k}].p;",
    },
)


def kernel_text(body: Body, lines: Sequence[str], sizes: Sequence[str] = ()) -> str:
    """C text of a kernel's body: it reads its parameters, `sizes` first, and does `lines`."""
    names = [*sizes, *[f"n{axis}" for axis in range(body.walk.axes)]]
    return "".join(f"  {line}\n" for line in [*body.declare(names), "(void)n0;", *lines])


def nest(body: Body, axes: int, inner: Sequence[str], arrays: Sequence[int]) -> list[str]:
    """C lines of loops over the first `axes` axes, with indexes i0, i1, ..., around lines `inner`.

    The outermost loop goes from `begin` to `end`. Lines before `inner` point `q{n}` to the row of
    operand n (from 0), for each n in `arrays`.
    """
    lines = [body.row(i, [f"i{axis}" for axis in range(axes)]) for i in arrays]
    lines += inner
    for axis in reversed(range(axes)):
        first, end = ("begin", "end") if axis == 0 else ("0", f"n{axis}")
        lines = loop(f"for (i64 i{axis} = {first}; i{axis} < {end}; ++i{axis})", lines)
    return lines


@functools.lru_cache(maxsize=1024)
def element_kernel(assignments: Assignments, walk: Walk) -> str:
    """C text of a kernel for a formula without reductions; `walk`: how operands are in memory."""
    body = Body(walk, C)
    pairs = body.assigned(assignments)
    needed = body.needed([root for _, root in pairs])
    each = varying(needed, walk.varies)
    once = [line for v in needed if v not in each for line in body.line(v)]
    inner = [line for v in needed if v in each for line in body.line(v)]
    inner += [body.store(*pair) for pair in pairs]
    last = walk.axes - 1
    first, end = ("begin", "end") if last == 0 else ("0", f"n{last}")
    lines = [*once, SIMD, f"for (i64 i = {first}; i < {end}; ++i) {{", *indented(inner), "}"]
    return kernel_text(body, nest(body, last, lines, body.arrays_of(needed, pairs)))
