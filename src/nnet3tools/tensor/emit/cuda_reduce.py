"""Aggregates in CUDA C++: an expression reduced along some axes.

A warp or a block works on each output where neighbours in memory are reduced together. Otherwise
the threads of a warp work on neighbouring outputs. Where chunks are reduced first, the last block
of an output merges them, in an order that does not depend on which block is last.
"""

from __future__ import annotations

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.emit.body import Body, indented, loop
from nnet3tools.tensor.emit.cuda import CUDA, Source, coordinates, kernel_source
from nnet3tools.tensor.emit.walk import Access, Walk
from nnet3tools.tensor.formulas import Expr, Placeholder, Type


@dataclass(frozen=True)
class Reduction:
    """The layout of a reduction: operand 0 is the output, the others are the expression's.

    `walk` says how operands are found in memory; its first `num_kept` axes are not reduced.
    `accumulator` is the C++ class in which elements are accumulated, such as nn_Sum<float>,
    `value_type` the type of elements in it: float32 or float64. `by_columns`: neighbouring outputs
    are neighbours in memory, and reduced elements are not.
    """

    walk: Walk
    num_kept: int
    accumulator: str
    value_type: Type
    by_columns: bool


def reduce_kernel(expr: Expr, plan: Reduction) -> Source:
    """A kernel for out = beta * out + factor * the reduction of `expr`, laid out as `plan` says.

    Parameters: numbers of outputs, of elements reduced for each and of a chunk of these; the
    sizes of axes and the operands; factor and beta; memory for the results of chunks, and
    counters of finished chunks.
    """
    walk, state = plan.walk, plan.accumulator
    body = Body(walk, CUDA)
    moved: dict[Expr, Expr] = {Placeholder(n): Placeholder(n + 1) for n in expr.placeholders()}
    root = body.lower(expr.substitute(moved))
    values = body.needed([root])
    read = body.arrays_of(values)
    for i in read:
        body.places[i] = _place(walk, i, plan.num_kept)
    kept = [f"k{axis}" for axis in range(plan.num_kept)]
    outputs = coordinates("output", [f"n{axis}" for axis in range(plan.num_kept)], kept)
    held = CUDA.types[plan.value_type]
    work = [*body.lines([root]), f"acc.add(({held})({body.name(root)}));"]
    setup = [*outputs, *[body.row(i, kept) for i in read]]
    old, new = body.load(0, "q0[0]"), CUDA.stored("result", held, walk.types[0])
    store = [
        *outputs,
        body.row(0, kept),
        f"{held} result = ({held})factor * acc.value();",
        *loop("if (beta != 0.0)", [old, f"result += ({held})beta * ({held})x1;"]),
        f"q0[0] = {new};",
    ]
    axis, width = ("y", "part[8][33]") if plan.by_columns else ("x", "part[9]")
    lines = [
        f"__shared__ {state} {width};",
        f"const long long output = {_OUTPUT[plan.by_columns]};",
        "const int thread = threadIdx.y * blockDim.x + threadIdx.x;",
        f"const bool leads = threadIdx.{axis} == 0;",
        *_reduced(plan, setup, work, axis),
        *_merged(plan, axis),
        *loop("if (leads && output < kept)", store),
    ]
    sizes = ["kept", "reduced", "chunk", *[f"n{axis}" for axis in range(walk.axes)]]
    parameters = [
        *body.declare(sizes), "double factor", "double beta", f"{state}* partial",
        "unsigned* tickets",
    ]  # fmt: skip
    return kernel_source("reduce", parameters, lines, f"{state} of {expr.text()}")


_OUTPUT = {
    False: "blockIdx.x * (long long)blockDim.y + threadIdx.y",
    True: "blockIdx.x * 32LL + threadIdx.x",
}


def _place(walk: Walk, i: int, num_kept: int) -> str:
    """C++ text of operand i's element at the coordinates r{axis} of the reduced axes.

    The operand's pointer is set from the first `num_kept` axes, which are not reduced.
    """
    accesses = list(enumerate(walk.accesses[i]))[num_kept:]
    terms = [
        f"r{axis}" if access is Access.CONTIGUOUS else f"r{axis} * s{i}_{axis}"
        for axis, access in accesses
        if access is not Access.REPEATED
    ]
    return f"q{i}[{' + '.join(terms) or '0'}]"


def _share(axis: str) -> list[str]:
    """The head of a CUDA loop over `index` in [begin, end), which threads along `axis` divide."""
    own, threads = f"threadIdx.{axis}", f"blockDim.{axis}"
    return [
        "#pragma unroll 4",  # loads that do not wait for each other
        f"for (long long index = begin + {own}; index < end; index += {threads}) {{",
    ]


def _carried(axes: range, step: str) -> list[str]:
    """CUDA lines that move r{axis}, coordinates along the reduced `axes`, on by `step` elements."""
    lines = [f"r{axes[-1]} += {step};"]
    for axis in reversed(axes[1:]):
        r, n, outer = f"r{axis}", f"n{axis}", f"r{axis - 1}"
        lines += [
            f"if ({r} >= {n}) {{ {r} -= {n}; ++{outer}; }}",
            f"if ({r} >= {n}) {{ {outer} += {r} / {n}; {r} %= {n}; }}",
        ]
    return lines


def _reduced(plan: Reduction, setup: list[str], work: list[str], axis: str) -> list[str]:
    """CUDA lines that reduce a chunk to the variable `acc`: by thread, then over all threads.

    `setup` are lines before the loop. `work` are lines that add the element at the coordinates
    r{axis} of the reduced axes to `acc`. Threads along `axis` (x or y) divide the elements.
    """
    axes = range(plan.num_kept, plan.walk.axes)
    begins = coordinates(
        f"begin + threadIdx.{axis}", [f"n{a}" for a in axes], [f"r{a}" for a in axes]
    )
    lines = [
        *setup,
        "const long long begin = blockIdx.y * chunk;",
        "const long long end = begin + chunk < reduced ? begin + chunk : reduced;",
        *[line.replace("const ", "") for line in begins],
        *_share(axis),
        *indented([*work, *_carried(axes, f"blockDim.{axis}")]),
        "}",
    ]
    init = f"{plan.accumulator} acc; acc.init();"
    return [init, *loop("if (output < kept)", lines), _together(plan)]


def _together(plan: Reduction) -> str:
    """The CUDA line that merges the variables `acc` of all threads that work on one output."""
    if plan.by_columns:
        return "acc = nn_columns(acc, part, threadIdx.x, threadIdx.y);"
    return "if (blockDim.x > 32) acc = nn_block(acc, part); else acc = nn_warp(acc);"


def _merged(plan: Reduction, axis: str) -> list[str]:
    """CUDA lines by which an output's last block merges the results of all chunks to `acc`.

    Threads along `axis` (x or y) divide the chunks.
    """
    chunks = [
        "const long long begin = 0, end = gridDim.y;",
        *_share(axis),
        "  acc.merge(partial[index * kept + output]);",
        "}",
    ]
    lines = [
        "__shared__ bool is_last;",
        "if (leads && output < kept) partial[blockIdx.y * kept + output] = acc;",
        "if (!nn_is_last(tickets + blockIdx.x, gridDim.y, thread == 0, &is_last)) return;",
        "acc.init();",
        *loop("if (output < kept)", chunks),
        _together(plan),
    ]
    return loop("if (gridDim.y > 1)", lines)
