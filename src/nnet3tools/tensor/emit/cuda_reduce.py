"""Aggregates in CUDA C++: an expression reduced along some axes.

A warp or a block works on each output where neighbours in memory are reduced together. Otherwise
the threads of a warp work on neighbouring outputs. Where chunks are reduced first, the last block
of an output merges them, in an order that does not depend on which block is last.
"""

from __future__ import annotations

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.emit.body import Body, loop
from nnet3tools.tensor.emit.cuda import CUDA, Source, by_fours, coordinates, kernel_source
from nnet3tools.tensor.emit.walk import Walk
from nnet3tools.tensor.formulas import Expr, Placeholder, Type
from nnet3tools.tensor.formulas.lowered import Instruction


@dataclass(frozen=True)
class Reduction:
    """The layout of a reduction: operand 0 is the output, the others are the expression's.

    `walk` says how operands are found in memory; its first `num_kept` axes are not reduced.
    `accumulator` is the C++ class in which elements are accumulated, such as nn_Sum<float>,
    `value_type` the type of elements in it: float32 or float64. `by_columns`: neighbouring outputs
    are neighbours in memory, and reduced elements are not. `by_fours`: elements are loaded by four
    along the last axis. `width` threads (a power of two) divide a row along the last axis.
    """

    walk: Walk
    num_kept: int
    accumulator: str
    value_type: Type
    by_columns: bool
    by_fours: bool
    width: int


def reduce_kernel(expr: Expr, plan: Reduction) -> Source:
    """A kernel for out = beta * out + factor * the reduction of `expr`, laid out as `plan` says.

    Parameters: numbers of outputs, of elements (or fours) reduced for each and of a chunk of these;
    the sizes of axes and the operands; factor and beta; memory for the results of chunks, and
    counters of finished chunks.
    """
    walk, state = plan.walk, plan.accumulator
    body = Body(walk, CUDA)
    moved: dict[Expr, Expr] = {Placeholder(n): Placeholder(n + 1) for n in expr.placeholders()}
    root = body.lower(expr.substitute(moved))
    kept = [f"k{axis}" for axis in range(plan.num_kept)]
    outputs = coordinates("output", [f"n{axis}" for axis in range(plan.num_kept)], kept)
    held = CUDA.types[plan.value_type]
    old, new = body.load(0, "q0[0]"), CUDA.stored("result", held, walk.types[0])
    store = [
        *outputs,
        body.row(0, kept),
        f"{held} result = ({held})factor * acc.value();",
        *loop("if (beta != 0.0)", [old, f"result += ({held})beta * ({held})x1;"]),
        f"q0[0] = {new};",
    ]
    axis, width, output = "x", "part[9]", "blockIdx.x * (long long)blockDim.y + threadIdx.y"
    if plan.by_columns:
        axis, width, output = "y", "part[8][33]", "blockIdx.x * 32LL + threadIdx.x"
    lines = [
        f"__shared__ {state} {width};",
        f"const long long output = {output};",
        "const int thread = threadIdx.y * blockDim.x + threadIdx.x;",
        f"const bool leads = threadIdx.{axis} == 0;",
        *_reduced(plan, body, root, axis),
        *_merged(plan, axis),
        *loop("if (leads && output < kept)", store),
    ]
    sizes = ["kept", "reduced", "chunk", *[f"n{axis}" for axis in range(walk.axes)]]
    parameters = [
        *body.declare(sizes), "double factor", "double beta", f"{state}* partial",
        "unsigned* tickets",
    ]  # fmt: skip
    return kernel_source("reduce", parameters, lines, f"{state} of {expr.text()}")


def _reduced(plan: Reduction, body: Body, root: Instruction, axis: str) -> list[str]:
    """CUDA lines that reduce `root` over elements `begin` to `end` to `acc`: by thread, then all.

    A row is along the last reduced axis; `width` threads along `axis` (x or y) divide one, and
    others of the block take the next rows.
    """
    last, lane = plan.walk.axes - 1, f"threadIdx.{axis} % {plan.width}"
    kept = [f"k{a}" for a in range(plan.num_kept)]
    outer = range(plan.num_kept, last)
    names = [f"r{a}" for a in outer]
    read = body.arrays_of(body.needed([root]))
    add = f"acc.add(({CUDA.types[plan.value_type]})({body.name(root)}));"
    work, rest = [*body.lines([root]), add], list[str]()
    if plan.by_fours:
        rest = loop(
            f"if (past == items && {lane} < n{last} % 4)",
            [f"const long long i = items * 4 + {lane};", *work],
        )
        vectors = [i for i in read if plan.walk.is_contiguous(i)]
        body.places.update({i: f"w{i}.part[k]" for i in vectors})
        work = by_fours(plan.walk, [*body.lines([root]), add], vectors, vectors, [])
    line = [
        *[body.row(i, [*kept, *names]) for i in read],
        "const long long first = nn_max(begin - row * items, 0LL);",
        "const long long past = nn_min(end - row * items, items);",
        "#pragma unroll 4",  # loads that do not wait for each other
        *loop(f"for (long long i = first + {lane}; i < past; i += {plan.width})", work),
        *rest,
    ]
    if outer:
        rows = f"row * items < end; row += blockDim.{axis} / {plan.width}"
        line = loop(
            f"for (long long row = begin / items + threadIdx.{axis} / {plan.width}; {rows})",
            [*coordinates("row", [f"n{a}" for a in outer], names), *line],
        )
    lines = [
        *coordinates("output", [f"n{a}" for a in range(plan.num_kept)], kept),
        f"const long long items = n{last}{' / 4' if plan.by_fours else ''};",
        f"const long long begin = blockIdx.y * chunk{'' if outer else ', row = 0'};",
        "const long long end = nn_min(begin + chunk, reduced);",
        *line,
    ]
    lines = loop("if (output < kept)", lines)
    return [f"{plan.accumulator} acc; acc.init();", *lines, _together(plan)]


def _together(plan: Reduction) -> str:
    """The CUDA line that merges the variables `acc` of all threads that work on one output."""
    if plan.by_columns:
        return "acc = nn_columns(acc, part, threadIdx.x, threadIdx.y);"
    return "if (blockDim.x > 32) acc = nn_block(acc, part); else acc = nn_warp(acc);"


def _merged(plan: Reduction, axis: str) -> list[str]:
    """CUDA lines: the block that ends last merges all chunks of an output to the variable `acc`.

    Each block has reduced one chunk of elements. Threads along `axis` (x or y) divide the chunks.
    """
    chunks = [
        "#pragma unroll 4",
        f"for (long long index = threadIdx.{axis}; index < gridDim.y; index += blockDim.{axis})",
        "  acc.merge(partial[index * kept + output]);",
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
