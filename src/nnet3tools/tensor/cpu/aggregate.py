"""Aggregate as C: reductions along rows, of columns, or of everything to one number."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.tensor.aggregate import Reduction
from nnet3tools.tensor.cpu.columns import (
    START,
    Columns,
    Finish,
    column_job,
    finish,
    finish_arguments,
)
from nnet3tools.tensor.cpu.kernels import Job, Kernel, indented
from nnet3tools.tensor.cpu.row_formula import extreme
from nnet3tools.tensor.cpu.spelling import C
from nnet3tools.tensor.cpu.walks import SIMD, Parameters, Walk, arguments, can_walk, walk_of
from nnet3tools.tensor.formulas import Expr, Placeholder, Type
from nnet3tools.tensor.formulas.lowered import Kind, used
from nnet3tools.tensor.formulas.stages import varying
from nnet3tools.tensor.plain.aggregate import prepare, target_of
from nnet3tools.tensor.plain.operands import overlap
from nnet3tools.tensor.source_body import Body
from nnet3tools.tensor.strides import broadcast_strides, element_strides, merge_axes

__all__ = ["aggregate_jobs", "number_jobs"]

_KNOWN = ("sum", "mean", "max", "min")
_ADDED = {False: 512, True: 128}
"""Numbers of a row that are added up in float32; fewer if the output is float64."""
_ROWS = {False: 64, True: 16}
"""The same for columns."""
_CHUNK = 4096
"""Elements of a vector that are reduced by themselves; a float64 each is then added up."""


def aggregate_jobs(
    expr: Expr, reduce: Reduction, axis: int, out: np.ndarray, ins: Sequence[Any],
    alpha: Any, beta: float,
) -> list[Job] | None:  # fmt: skip
    """out = beta * out + alpha * the reduction; None where that is left to NumPy."""
    if reduce not in _KNOWN or not can_walk([out, *ins]) or out.dtype.kind != "f":
        return None
    if any(isinstance(a, np.ndarray) and overlap(out, a) for a in ins):
        return None
    operands, axes, full = prepare(ins, axis)
    if 0 in full:
        return None
    how = "sum" if reduce == "mean" else str(reduce)
    target = target_of(out, tuple(1 if i in axes else n for i, n in enumerate(full)), axes[0])
    kept = [i for i in range(len(full)) if i not in axes]
    arrays = [o for o in operands if isinstance(o, np.ndarray)]
    walks = [broadcast_strides(a, full) for a in arrays]
    to = element_strides(target)
    sizes, steps = merge_axes([full[i] for i in kept], [[w[i] for i in kept] for w in [*walks, to]])
    along = min((abs(s[-1]) for s in steps[:-1] if s[-1]), default=0)
    down = min((abs(w[axes[0]]) for w in walks if w[axes[0]]), default=1)
    divisor = float(full[axes[0]]) if reduce == "mean" else 1.0
    given = finish_arguments(out, steps[-1], alpha, divisor, beta)
    reduced = [w[axes[0]] for w in walks]
    count, wide = full[axes[0]], out.dtype == np.float64
    if 0 < along < down:
        order = [[*s[:-1], r, s[-1]] for s, r in zip(steps[:-1], reduced, strict=True)]
        found = walk_of(operands, order)
        columns = Columns(None, ((expr, how, finish(out, alpha, beta)),), _ROWS[wide])
        sizes = [*sizes[:-1], count, sizes[-1]]
        return [column_job(columns, found, sizes, operands, order, [given])]
    order = [[*s, r] for s, r in zip(steps[:-1], reduced, strict=True)]
    found = walk_of(operands, order)
    kernel = _row_kernel(expr, how, found, len(sizes), finish(out, alpha, beta), _ADDED[wide])
    values = [*sizes, count, *arguments(found, operands, order), *given]
    return [Job(kernel, values, sizes[0], math.prod(full) * len(arrays))]


def number_jobs(
    expr: Expr, reduce: Reduction, out: np.ndarray, operands: Sequence[Any], alpha: Any
) -> list[Job] | None:
    """out[0] = alpha * the reduction of everything: by chunks, then of what they gave, in order."""
    if reduce not in _KNOWN or not can_walk(operands):
        return None
    arrays = [o for o in operands if isinstance(o, np.ndarray)]
    full = np.broadcast_shapes(*(a.shape for a in arrays))
    if 0 in full:
        return None
    sizes, order = merge_axes(full, [broadcast_strides(a, full) for a in arrays])
    total, count = sizes[-1], math.prod(full)
    outer = sizes[:-1]
    if not outer:
        outer = [-(-total // _CHUNK)]
        order = [[s[0] * _CHUNK, s[0]] for s in order]
    found = walk_of(operands, order)
    parts = np.empty(outer[0], np.float64)
    how = "sum" if reduce == "mean" else str(reduce)
    kernel = _part_kernel(expr, how, found, len(sizes) == 1)
    values = [*outer, total, *arguments(found, operands, order), parts]
    first = Job(kernel, values, outer[0], count * len(arrays))
    divisor = float(count) if reduce == "mean" else 1.0
    to = finish(out, alpha, 0.0)
    given = finish_arguments(out, [0], alpha, divisor, 0.0)
    last = _row_kernel(Placeholder(1), how, walk_of([parts], [[0, 1]]), 1, to, 1 << 30)
    return [first, Job(last, [1, outer[0], parts, 0, *given], 1, outer[0])]


def _taken(found: Walk) -> Parameters:
    taken = Parameters()
    for axis in range(found.axes):
        taken.size(f"n{axis}")
    taken.walked(found)
    return taken


@functools.lru_cache(maxsize=512)
def _row_kernel(expr: Expr, how: str, found: Walk, kept: int, out: Finish, added: int) -> Kernel:
    """Reduces the innermost axis for every place of the `kept` outer ones."""
    taken = _taken(found)
    out.take(taken, 0, kept)
    indexes = [f"k{axis}" for axis in range(kept)]
    lines = [f"f64 all = {START[how]};", *_reduced(expr, how, found, indexes, added, "0", "n")]
    lines.append(out.line(0, "all", indexes))
    for axis in reversed(range(kept)):
        begin, end = ("begin", "end") if axis == 0 else ("0", f"n{axis}")
        head = f"for (i64 k{axis} = {begin}; k{axis} < {end}; ++k{axis}) {{"
        lines = [head, *indented(lines), "}"]
    body = [*taken.lines, "(void)n0;", f"const i64 n = n{found.last};", *lines]
    return Kernel("".join(f"  {line}\n" for line in body))


@functools.lru_cache(maxsize=256)
def _part_kernel(expr: Expr, how: str, found: Walk, is_vector: bool) -> Kernel:
    """Reduces everything below each place of the first axis, or each chunk of a vector."""
    taken = _taken(found)
    taken.pointer("parts", "f64")
    indexes = [f"k{axis}" for axis in range(found.last)]
    size = f"n{found.last}"
    n = f"NN_LEAST({_CHUNK}, {size} - k0 * {_CHUNK})" if is_vector else size
    lines = [f"const i64 n = {n};", *_reduced(expr, how, found, indexes, _ADDED[True], "0", "n")]
    for axis in reversed(range(1, found.last)):
        head = f"for (i64 k{axis} = 0; k{axis} < n{axis}; ++k{axis}) {{"
        lines = [head, *indented(lines), "}"]
    lines = [f"f64 all = {START[how]};", *lines, "parts[k0] = all;"]
    body = [
        *taken.lines,
        "(void)n0;",
        "for (i64 k0 = begin; k0 < end; ++k0) {",
        *indented(lines),
        "}",
    ]
    return Kernel("".join(f"  {line}\n" for line in body))


def _reduced(
    expr: Expr, how: str, found: Walk, indexes: Sequence[str], added: int, first: str, end: str
) -> list[str]:
    """The lines that take a row, from `first` to `end`, into `all`."""
    body = Body(found.types, C)
    root = body.lower(expr)
    instructions = used(body.instructions, [root])
    varies = varying(instructions, found.varies)
    once, each = list[str](), list[str]()
    arrays: list[int] = []
    for v in instructions:
        if v.kind is not Kind.OPERAND:
            (each if v in varies else once).extend(body.emit(v))
        elif not v.type.is_weak:
            arrays.append(v.number)
            (each if v in varies else once).append(found.load(v.number))
    held = "f32" if root.type is Type.FLOAT32 else "f64"
    value = body.name(root)
    lines = [*[found.row(i, indexes) for i in arrays], *once]
    if how == "sum":
        loop = [
            f"{held} part = 0;",
            f"{SIMD} reduction(+ : part)",
            f"for (i64 i = i_; i < NN_LEAST(i_ + {added}, {end}); ++i) {{",
            *indented([*each, f"part += {value};"]),
            "}",
            "all += part;",
        ]
        head = f"for (i64 i_ = {first}; i_ < {end}; i_ += {added}) {{"
        return [*lines, head, *indented(loop), "}"]
    before, within, after = extreme(f"row_{how}", "row", value, held)
    clauses = f"reduction({how} : all_row) reduction(| : nan_row)"
    head = f"for (i64 i = {first}; i < {end}; ++i) {{"
    loop = [f"{SIMD} {clauses}", head, *indented([*each, *within]), "}"]
    return [*lines, *before, *loop, *after, f"all = nn_{how}(all, row);"]
