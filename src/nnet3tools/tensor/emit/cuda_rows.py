"""Formulas that reduce rows, in CUDA C++: a block of threads for each row.

Each stage of reductions is one loop over the row, and so is the last, which stores. A loop computes
again what it needs of the row's elements. Between the loops every thread computes the values that
are the same for the whole row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from nnet3tools.tensor.emit.body import Body, loop
from nnet3tools.tensor.emit.cuda import CUDA, Source, coordinates, kernel_source
from nnet3tools.tensor.emit.walk import Walk
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.formulas.lowered import Instruction
from nnet3tools.tensor.formulas.stages import RowStages, varying

_REDUCERS = {"row_sum": "nn_Sum", "row_mean": "nn_Sum", "row_max": "nn_Max", "row_min": "nn_Min"}


@functools.lru_cache(maxsize=256)
def row_kernel(assignments: Assignments, walk: Walk) -> Source:
    """A kernel for a formula that reduces rows (along the last axis).

    `walk` has the axes and strides of operands in memory. Parameters of the kernel are the sizes of
    the axes, the number of rows, and the operands (addresses, strides, numbers).
    """
    body = Body(walk, CUDA)
    pairs = body.assigned(assignments)
    values = body.needed([root for _, root in pairs])
    stages = RowStages(values, varying(values, walk.varies))
    last = walk.axes - 1
    width, outer = f"n{last}", [f"c{axis}" for axis in range(last)]
    lines = coordinates("row", [f"n{axis}" for axis in range(last)], outer)
    lines += [body.row(i, outer) for i in body.arrays_of(values, pairs)]
    for stage in range(stages.last):
        lines += [line for v in stages.once(stage) for line in body.line(v)]
        lines += _reduce(body, stages, stages.reductions(stage), width)
    lines += [line for v in stages.once(stages.last) for line in body.line(v)]
    # no barrier: what is the same for a row was read before the reductions, which have theirs
    whole = [pair for pair in pairs if walk.varies(pair[0])]
    stores = [body.store(*pair) for pair in whole]
    lines += _loop(body, stages, [root for _, root in whole], stores, width)
    once = [body.store(*pair) for pair in pairs if pair not in whole]
    if once:
        lines += loop("if (threadIdx.x == 0)", once)
    lines = loop("for (long long row = blockIdx.x; row < rows; row += gridDim.x)", lines)
    sizes = [*(f"n{axis}" for axis in range(walk.axes)), "rows"]
    return kernel_source("rows", body.declare(sizes), lines, assignments.text())


def _reduce(
    body: Body, stages: RowStages, reductions: Sequence[Instruction], width: str
) -> list[str]:
    """CUDA lines of the loop over a row of `width` elements that makes these row reductions."""
    before, adds, after = list[str](), list[str](), list[str]()
    for v in reductions:
        name, held = body.name(v), body.held(v)
        state = f"{_REDUCERS[v.name]}<{held}>"
        mean = f" / ({held}){width}" if v.name == "row_mean" else ""
        before += [f"__shared__ {state} part_{name}[9];", f"{state} acc_{name};"]
        before.append(f"acc_{name}.init();")
        adds.append(f"acc_{name}.add({body.name(v.inputs[0])});")
        after.append(f"const {held} {name} = nn_block(acc_{name}, part_{name}).a{mean};")
    inputs = [v.inputs[0] for v in reductions]
    return [*before, *_loop(body, stages, inputs, adds, width), *after]


def _loop(
    body: Body, stages: RowStages, roots: Sequence[Instruction], last: Sequence[str], width: str
) -> list[str]:
    """CUDA lines of a loop over a row's `width` elements: compute `roots`, then do lines `last`."""
    if not last:
        return []
    known = [v for v in body.instructions if v not in stages.varying]
    head = f"for (long long i = threadIdx.x; i < {width}; i += blockDim.x)"
    return loop(head, [*body.lines(roots, known), *last])
