"""Sources of the kernels of reductions (aggregate.py binds them to operands).

A warp or a block works on each output where neighbours in memory are reduced together, else the
threads of a warp work on neighbouring outputs. Where chunks are reduced first, the last block of an
output to finish merges them, in an order that does not depend on which block that is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from nnet3tools.tensor.aggregate import Fold
from nnet3tools.tensor.cuda.formula import C_TYPES, STORED_TYPES, Body, converted, load
from nnet3tools.tensor.formulas import Expr, Type

__all__ = ["Parts", "Reducer", "fold_reducer", "reduce_source"]


@dataclass(frozen=True)
class Reducer:
    """The C++ type that a reduction is carried in."""

    state: str
    source: str = ""
    """Its definition, if it does not stand in the prelude."""
    in_order: bool = False
    """Whether a thread's elements must be neighbours, and the threads' results merged in order."""


def fold_reducer(fold: Fold, held: Type) -> Reducer:
    """The state of a fold, carried in float32 or float64: combined so far, if there was any."""
    c = C_TYPES[held]
    functions = [
        *_function("combine", fold.combine, (held, held)),
        *_function("finish", fold.finish, (held,)),
    ]
    lines = [
        f"  {c} a; int any;",
        *(f"  {line}" for line in functions),
        f"  __device__ __forceinline__ void init() {{ a = {c}(0); any = 0; }}",
        f"  __device__ __forceinline__ void add({c} v) {{ a = any ? combine(a, v) : v; any = 1; }}",
        "  __device__ __forceinline__ void merge(NAME o) { if (o.any) add(o.a); }",
        "  __device__ __forceinline__ NAME down(int d) {",
        "    NAME o;",
        "    o.a = __shfl_down_sync(0xffffffffu, a, d);",
        "    o.any = __shfl_down_sync(0xffffffffu, any, d);",
        "    return o;",
        "  }",
        f"  __device__ __forceinline__ {c} value() {{ return finish(a); }}",
    ]
    text = "\n".join(lines)
    name = "nn_Fold_" + hashlib.sha1(text.encode()).hexdigest()[:16]
    struct = f"struct {name} {{\n{text.replace('NAME', name)}\n}};"
    return Reducer(name, f"#ifndef {name}_\n#define {name}_\n{struct}\n#endif\n", in_order=True)


def _function(name: str, expr: Expr, types: tuple[Type, ...]) -> list[str]:
    """A C++ function of an expression's operands."""
    body = Body(types)
    value, held = body.add(expr)
    c = C_TYPES[types[0]]
    given = ", ".join(f"{c} x{i}" for i in range(1, len(types) + 1))
    return [
        f"static __device__ __forceinline__ {c} {name}({given}) {{",
        *(f"  {line}" for line in body.lines),
        f"  return {converted(value, held, c)};",
        "}",
    ]


@dataclass(frozen=True)
class Parts:
    """How operands are walked in a reduction: letters (0 repeated, s strided) an axis, by part.

    c, for the last axis that is reduced: its elements are neighbours in memory.
    """

    types: tuple[Type, ...]
    kept: tuple[str, ...]
    reduced: tuple[str, ...]
    reducer: Reducer
    accumulator: str
    out_type: Type
    out_letters: str
    by_columns: bool

    @property
    def state(self) -> str:
        """C++ type that a reduction is carried in."""
        return self.reducer.state


def _coordinates(index: str, name: str, axes: int) -> list[str]:
    """Lines that take a linear index apart into coordinates `name`0, `name`1, ..."""
    lines = [f"long long {name}_rest = {index};"]
    for axis in range(axes - 1, 0, -1):
        lines.append(
            f"const long long {name}{axis} = {name}_rest % n{name}{axis}; "
            f"{name}_rest /= n{name}{axis};"
        )
    return [*lines, f"const long long {name}0 = {name}_rest;"]


def _offset(i: object, letters: str, name: str) -> list[str]:
    return [
        f"{name}{axis}" if c == "c" else f"{name}{axis} * s{i}_{name}{axis}"
        for axis, c in enumerate(letters)
        if c != "0"
    ]


def _store(parts: Parts) -> list[str]:
    """Lines that write `acc` to output k."""
    t, held = STORED_TYPES[parts.out_type], parts.accumulator
    place = f"out[{' + '.join(_offset('o', parts.out_letters, 'k')) or '0'}]"
    old = f"({held}){'__half2float' if t == '__half' else ''}({place})"
    value = "__float2half((float)result)" if t == "__half" else f"({t})result"
    return [
        f"{held} result = ({held})factor * acc.value();",
        f"if (beta != 0.0) result += ({held})beta * {old};",
        f"{place} = {value};",
    ]


def _size_parameters(parts: Parts) -> list[str]:
    names = ["long long kept", "long long reduced", "long long chunk"]
    names += [f"long long nk{axis}" for axis in range(1, len(parts.out_letters))]
    return names


def _out_parameters(parts: Parts) -> list[str]:
    names = [f"{STORED_TYPES[parts.out_type]}* out"]
    names += [f"long long so_k{a}" for a, c in enumerate(parts.out_letters) if c == "s"]
    names += ["double factor", "double beta", f"{parts.state}* partial", "unsigned* tickets"]
    return names


def reduce_source(expr: Expr, parts: Parts) -> tuple[str, str]:
    """Source and name of the kernel that reduces an expression over operands so walked."""
    body = Body(parts.types)
    value, _ = body.add(expr)
    reduced_axes = max((len(r) for r in parts.reduced), default=1)
    parameters = _size_parameters(parts)
    parameters += [f"long long nr{axis}" for axis in range(1, reduced_axes)]
    bases, loads = [], []
    for i, t in enumerate(parts.types, 1):
        if t.is_weak:
            parameters.append(f"{C_TYPES[t]} x{i}")
            continue
        kept, reduced = parts.kept[i - 1], parts.reduced[i - 1]
        parameters.append(f"{STORED_TYPES[t]}* p{i}")
        parameters += [f"long long s{i}_k{a}" for a, c in enumerate(kept) if c == "s"]
        parameters += [f"long long s{i}_r{a}" for a, c in enumerate(reduced) if c == "s"]
        bases.append(
            f"const {STORED_TYPES[t]}* const q{i} = "
            f"{' + '.join([f'p{i}', *_offset(i, kept, 'k')])};"
        )
        place = f"q{i}[{' + '.join(_offset(i, reduced, 'r')) or '0'}]"
        loads.append(load(i - 1, t, place))
    parameters += _out_parameters(parts)
    work = [*loads, *body.lines]
    work.append(f"acc.add(({parts.accumulator})({value}));")
    setup = [*_coordinates("output", "k", len(parts.out_letters)), *bases]
    lines = (_column_lines if parts.by_columns else _row_lines)(parts, setup, work, reduced_axes)
    source, name = _kernel("reduce_", parameters, lines, f"{parts.state} of {expr.text()}")
    return parts.reducer.source + source, name


def _kernel(prefix: str, parameters: list[str], lines: list[str], comment: str) -> tuple[str, str]:
    text = f"({', '.join(parameters)}) {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
    name = prefix + hashlib.sha1(text.encode()).hexdigest()[:16]
    return f'// {comment}\nextern "C" __global__ void {name}{text}', name


def _shared_out(parts: Parts, axis: str) -> list[str]:
    """The head of a thread's loop from `begin` to `end`, beside the others along an axis."""
    own, threads = f"threadIdx.{axis}", f"blockDim.{axis}"
    if not parts.reducer.in_order:
        return [
            "#pragma unroll 4",  # loads that do not wait for each other
            f"for (long long index = begin + {own}; index < end; index += {threads})",
        ]
    return [
        f"const long long share = (end - begin + {threads} - 1) / {threads};",
        f"const long long first = begin + share * {own};",
        "for (long long index = first; index < end && index < first + share; ++index)",
    ]


def _carried(axes: int, step: str) -> list[str]:
    """Lines that go on by `step` in coordinates r0, r1, ...

    They divide where a step is longer than an axis only: that takes longer than to load and add.
    """
    lines = [f"r{axes - 1} += {step};"]
    for axis in range(axes - 1, 0, -1):
        r, n, outer = f"r{axis}", f"nr{axis}", f"r{axis - 1}"
        lines += [
            f"if ({r} >= {n}) {{ {r} -= {n}; ++{outer}; }}",
            f"if ({r} >= {n}) {{ {outer} += {r} / {n}; {r} %= {n}; }}",
        ]
    return lines


def _reduced(parts: Parts, setup: list[str], work: list[str], axis: str, axes: int) -> list[str]:
    """Lines that reduce a thread's part of a chunk to `acc`; `axes` are reduced."""
    in_order, own = parts.reducer.in_order, f"threadIdx.{axis}"
    first = "begin + (end - begin + N - 1) / N * own".replace("N", f"blockDim.{axis}")
    begins = _coordinates(first.replace("own", own) if in_order else f"begin + {own}", "r", axes)
    return [
        f"{parts.state} acc; acc.init();",
        "if (output < kept) {",
        *(f"  {line}" for line in setup),
        "  const long long begin = blockIdx.y * chunk;",
        "  const long long end = begin + chunk < reduced ? begin + chunk : reduced;",
        *(f"  {line.replace('const ', '')}" for line in begins),
        *(f"  {line}" for line in _shared_out(parts, axis)),
        "  {",
        *(f"    {line}" for line in work),
        *(f"    {line}" for line in _carried(axes, "1" if in_order else f"blockDim.{axis}")),
        "  }",
        "}",
    ]


def _merged(parts: Parts, axis: str, together: str) -> list[str]:
    """Lines that merge an output's chunks to `acc` in the last block of the output's chunks.

    `together` merges what the block's threads have.
    """
    return [
        "if (gridDim.y > 1) {",
        "  __shared__ bool is_last;",
        "  if (leads && output < kept) partial[blockIdx.y * kept + output] = acc;",
        "  if (!nn_is_last(tickets + blockIdx.x, gridDim.y, thread == 0, &is_last)) return;",
        "  acc.init();",
        "  if (output < kept) {",
        "    const long long begin = 0, end = gridDim.y;",
        *(f"    {line}" for line in _shared_out(parts, axis)),
        "      acc.merge(partial[index * kept + output]);",
        "  }",
        f"  {together}",
        "}",
    ]


def _stored(parts: Parts, setup: list[str]) -> list[str]:
    """Lines that write `acc` to the output."""
    own = [line for line in setup if not line.startswith("const") or "q" not in line]
    return [
        "if (leads && output < kept) {",
        *(f"  {line}" for line in [*own, *_store(parts)]),
        "}",
    ]


def _row_lines(parts: Parts, setup: list[str], work: list[str], axes: int) -> list[str]:
    together = "if (blockDim.x > 32) acc = nn_block(acc, part); else acc = nn_warp(acc);"
    if parts.reducer.in_order:
        together = "acc = nn_warp_in_order(acc);"
    return [
        f"__shared__ {parts.state} part[9];",
        "const long long output = blockIdx.x * (long long)blockDim.y + threadIdx.y;",
        "const int thread = threadIdx.y * blockDim.x + threadIdx.x;",
        "const bool leads = threadIdx.x == 0;",
        *_reduced(parts, setup, work, "x", axes),
        together,
        *_merged(parts, "x", together),
        *_stored(parts, setup),
    ]


def _column_lines(parts: Parts, setup: list[str], work: list[str], axes: int) -> list[str]:
    together = "acc = nn_columns(acc, part, threadIdx.x, threadIdx.y);"
    return [
        f"__shared__ {parts.state} part[8][33];",
        "const long long output = blockIdx.x * 32LL + threadIdx.x;",
        "const int thread = threadIdx.y * blockDim.x + threadIdx.x;",
        "const bool leads = threadIdx.y == 0;",
        *_reduced(parts, setup, work, "y", axes),
        together,
        *_merged(parts, "y", together),
        *_stored(parts, setup),
    ]
