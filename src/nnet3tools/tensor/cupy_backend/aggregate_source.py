"""Sources of the kernels of reductions (aggregate.py binds them to operands).

A warp or a block works on each output where neighbours in memory are reduced together, else the
threads of a warp work on neighbouring outputs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from nnet3tools.tensor.aggregate import Fold
from nnet3tools.tensor.cupy_backend.formula import C_TYPES, STORED_TYPES, Body, converted, load
from nnet3tools.tensor.functional import Expr, Type

__all__ = ["Parts", "Reducer", "finish_source", "fold_reducer", "reduce_source"]


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
    """How operands are walked in a reduction: letters (0 repeated, s strided) an axis, by part."""

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
    return [f"{name}{axis} * s{i}_{name}{axis}" for axis, c in enumerate(letters) if c == "s"]


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
    return [*names, "double factor", "double beta", f"{parts.state}* partial"]


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
    work = [*_coordinates("index", "r", reduced_axes), *loads, *body.lines]
    work.append(f"acc.add(({parts.accumulator})({value}));")
    setup = [*_coordinates("output", "k", len(parts.out_letters)), *bases]
    lines = (_column_lines if parts.by_columns else _row_lines)(parts, setup, work)
    source, name = _kernel("reduce_", parameters, lines, f"{parts.state} of {expr.text()}")
    return parts.reducer.source + source, name


def _kernel(prefix: str, parameters: list[str], lines: list[str], comment: str) -> tuple[str, str]:
    text = f"({', '.join(parameters)}) {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
    name = prefix + hashlib.sha1(text.encode()).hexdigest()[:16]
    return f'// {comment}\nextern "C" __global__ void {name}{text}', name


def _partial_or(store: list[str], setup: list[str]) -> list[str]:
    return [
        "if (gridDim.y > 1) {",
        "  partial[blockIdx.y * kept + output] = acc;",
        "} else {",
        *(f"  {line}" for line in [*setup, *store]),
        "}",
    ]


def _elements_of_thread(parts: Parts, axis: str) -> list[str]:
    """The head of a thread's loop from `begin` to `end`, beside the others along an axis."""
    own, threads = f"threadIdx.{axis}", f"blockDim.{axis}"
    if not parts.reducer.in_order:
        return [f"for (long long index = begin + {own}; index < end; index += {threads}) {{"]
    return [
        f"const long long share = (end - begin + {threads} - 1) / {threads};",
        f"const long long first = begin + share * {own};",
        "for (long long index = first; index < end && index < first + share; ++index) {",
    ]


def _row_lines(parts: Parts, setup: list[str], work: list[str]) -> list[str]:
    own = [line for line in setup if not line.startswith("const") or "q" not in line]
    return [
        f"__shared__ {parts.state} part[9];",
        "const long long output = blockIdx.x * (long long)blockDim.y + threadIdx.y;",
        "if (output >= kept) return;",
        f"{parts.state} acc; acc.init();",
        "{",
        *(f"  {line}" for line in setup),
        "  const long long begin = blockIdx.y * chunk;",
        "  const long long end = begin + chunk < reduced ? begin + chunk : reduced;",
        *(f"  {line}" for line in _elements_of_thread(parts, "x")),
        *(f"    {line}" for line in work),
        "  }",
        "}",
        "acc = nn_warp_in_order(acc);"
        if parts.reducer.in_order
        else "if (blockDim.x > 32) acc = nn_block(acc, part); else acc = nn_warp(acc);",
        "if (threadIdx.x == 0) {",
        *(f"  {line}" for line in _partial_or(_store(parts), own)),
        "}",
    ]


def _column_lines(parts: Parts, setup: list[str], work: list[str]) -> list[str]:
    own = [line for line in setup if not line.startswith("const") or "q" not in line]
    return [
        f"__shared__ {parts.state} part[8][33];",
        "const long long output = blockIdx.x * 32LL + threadIdx.x;",
        f"{parts.state} acc; acc.init();",
        "if (output < kept) {",
        *(f"  {line}" for line in setup),
        "  const long long begin = blockIdx.y * chunk;",
        "  const long long end = begin + chunk < reduced ? begin + chunk : reduced;",
        *(f"  {line}" for line in _elements_of_thread(parts, "y")),
        *(f"    {line}" for line in work),
        "  }",
        "}",
        "part[threadIdx.y][threadIdx.x] = acc;",
        "__syncthreads();",
        "if (threadIdx.y == 0 && output < kept) {",
        "  for (int y = 1; y < blockDim.y; ++y) acc.merge(part[y][threadIdx.x]);",
        *(f"  {line}" for line in _partial_or(_store(parts), own)),
        "}",
    ]


def finish_source(parts: Parts) -> tuple[str, str]:
    """Source and name of the kernel that merges chunks, in order."""
    lines = [
        "for (long long output = blockIdx.x * (long long)blockDim.x + threadIdx.x; output < kept;",
        "     output += (long long)gridDim.x * blockDim.x) {",
        f"  {parts.state} acc = partial[output];",
        "  for (long long c = 1; c < chunk; ++c) acc.merge(partial[c * kept + output]);",
        *(f"  {x}" for x in _coordinates("output", "k", len(parts.out_letters))),
        *(f"  {x}" for x in _store(parts)),
        "}",
    ]
    parameters = [*_size_parameters(parts), *_out_parameters(parts)]
    source, name = _kernel("finish_", parameters, lines, f"{parts.state}, chunks merged")
    return parts.reducer.source + source, name
