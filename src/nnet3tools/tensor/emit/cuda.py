"""CUDA C++ for GPUs: the dialect, and the kernel of a formula without reductions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from nnet3tools.tensor.emit.body import CALLS, Body, Dialect, indented, loop
from nnet3tools.tensor.emit.walk import Walk
from nnet3tools.tensor.formulas import Assignments, Type
from nnet3tools.tensor.formulas.lowered import Target

Source = tuple[str, str]
"""A kernel's source and its name."""

VECTOR_TYPES = {Type.FLOAT32: "float4", Type.INT32: "int4", Type.UINT32: "uint4"}

_TYPES = {
    Type.BOOL: "bool", Type.INT32: "int", Type.UINT32: "unsigned", Type.FLOAT16: "float",
    Type.FLOAT32: "float", Type.FLOAT64: "double", Type.WEAK_INT: "long long",
    Type.WEAK_FLOAT: "double",
}  # fmt: skip

_CALLS = CALLS | {
    "abs": "nn_abs({0})", "sgn": "nn_sgn({0})", "max": "nn_max({0}, {1})",
    "min": "nn_min({0}, {1})", "exp": "exp{f}({0})", "log": "log{f}({0})", "tanh": "tanh{f}({0})",
    "erf": "erf{f}({0})", "sigmoid": "nn_sigmoid({0})",
}  # fmt: skip

CUDA = Dialect(
    types=_TYPES,
    stored_types=_TYPES | {Type.FLOAT16: "__half"},
    calls=_CALLS,
    target=Target("cupy", frozenset(_CALLS)),
    size="long long",
    integer="({0})({1}LL)",
    infinity="__int_as_float(0x7f800000)",
    nan="__int_as_float(0x7fc00000)",
    parameters={"size": "long long {name}", "number": "double {name}", "pointer": "{type}* {name}"},
    rounded_half="__half2float(__float2half({0}))",
    loaded_half="__half2float({0})",
    stored_half="__float2half({0})",
)


def kernel_source(
    prefix: str, parameters: Sequence[str], lines: Sequence[str], comment: str = ""
) -> Source:
    """(source, name) of a CUDA kernel: `comment`, parameters, `lines`; name: `prefix`, digest."""
    text = "\n".join([f"({', '.join(parameters)}) {{", *indented(lines), "}", ""])
    name = f"{prefix}_{hashlib.sha1(text.encode()).hexdigest()[:16]}"
    head = f"// {comment}\n" if comment and "\\" not in comment else ""
    return f'{head}extern "C" __global__ void {name}{text}', name


def coordinates(index: str, sizes: Sequence[str], names: Sequence[str]) -> list[str]:
    """CUDA lines that set the variables `names` to the coordinates of the linear index `index`.

    `sizes` are the sizes of the axes, as text; the first is not needed.
    """
    if len(names) == 1:
        return [f"const long long {names[0]} = {index};"]
    lines = [f"long long rest_{names[0]} = {index};"]
    for size, name in reversed(list(zip(sizes[1:], names[1:], strict=True))):
        lines.append(
            f"const long long {name} = rest_{names[0]} % {size}; rest_{names[0]} /= {size};"
        )
    return [*lines, f"const long long {names[0]} = rest_{names[0]};"]


def grid_loop(index: str, size: str, axis: str, lines: Sequence[str]) -> list[str]:
    """CUDA lines of a loop over `index` below `size`; the grid's threads along `axis` divide it."""
    first = f"blockIdx.{axis} * (long long)blockDim.{axis} + threadIdx.{axis}"
    step = f"(long long)gridDim.{axis} * blockDim.{axis}"
    return loop(f"for (long long {index} = {first}; {index} < {size}; {index} += {step})", lines)


def element_kernel(assignments: Assignments, walk: Walk, vector: bool) -> Source:
    """A kernel for a formula without reductions: a thread for each element, or for four (`vector`).

    `walk` says how operands are in memory. Parameters are the sizes of the axes, the number of rows
    if there are several axes, then the operands (addresses, strides, numbers).
    """
    body = Body(walk, CUDA)
    pairs = body.assigned(assignments)
    values = body.needed([root for _, root in pairs])
    read, arrays = body.arrays_of(values), body.arrays_of(values, pairs)
    last = walk.axes - 1
    outer = [f"c{axis}" for axis in range(last)]
    if vector:
        vectors = [i for i in arrays if walk.is_contiguous(i)]
        body.places.update({i: f"w{i}.part[k]" for i in vectors})
    computed = [line for v in values for line in body.line(v)]
    computed += [body.store(*pair) for pair in pairs]
    inner, size = computed, f"n{last}"
    if vector:
        inner, size = by_fours(walk, computed, vectors, read, [t for t, _ in pairs]), f"n{last} / 4"
    lines = [body.row(i, outer) for i in arrays]
    lines += grid_loop("i", size, "x", inner)
    sizes = [f"n{axis}" for axis in range(walk.axes)]
    if last:
        lines = grid_loop("r", "rows", "y", [*coordinates("r", sizes[:last], outer), *lines])
        sizes = [*sizes, "rows"]
    return kernel_source("element", body.declare(sizes), lines, assignments.text())


def by_fours(
    walk: Walk, lines: Sequence[str], vectors: Sequence[int], read: Sequence[int],
    targets: Sequence[int],
) -> list[str]:  # fmt: skip
    """CUDA lines for elements 4 i to 4 i + 3 of a row; `lines` compute element k of the four.

    `vectors` are the numbers of the operands accessed in vectors of four, each as the union
    w<number>; of these, `read` are loaded before the lines and `targets` stored after them.
    """
    before, after = list[str](), list[str]()
    for i in vectors:
        wide, part = VECTOR_TYPES[walk.types[i]], CUDA.types[walk.types[i]]
        before.append(f"union {{ {wide} all; {part} part[4]; }} w{i};")
        if i in read:
            before.append(f"w{i}.all = (({wide}*)q{i})[i];")
        if i in targets:
            after.append(f"(({wide}*)q{i})[i] = w{i}.all;")
    return [*before, "#pragma unroll", *loop("for (int k = 0; k < 4; ++k)", lines), *after]
