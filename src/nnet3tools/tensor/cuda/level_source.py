"""The source of a fused level: one kernel that does the work of several launches.

Each launch's kernel becomes a function with block and thread as parameters (nn_Place). A table
assigns the level's blocks to its parts. It is a parameter of the kernel: its numbers are in the
constant cache, so that no block waits for them. Every number of the table takes 8 bytes:

    part:  its first block, grid (x, y), first step and their count, its group
    group: how many blocks it has, first closing step and their count
    step:  which function, and how many steps from this on are done side by side, each by a warp
           (0: the whole block does this one; in parts always); where its arguments begin; block
           (x, y); where its flag is in memory (0: it has none), a float64: if that is 0, it is
           left out. Of two numbers in one word the second is in the upper half.

A block does its part's steps one after the other. The last block of a group also does the group's
closing steps, when all parts of the group are done.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

THREADS, WARP = 256, 32
"""Threads of a level's block, and of a warp, which may do a closing step by itself."""

PART, GROUP, STEP = 6, 3, 4
"""Numbers in a table's entries."""
_FEW_WORDS, MOST_WORDS = 128, 508
"""Sizes of tables, each a kernel of its own; with the other parameters the larger has 4 KB."""

_KERNEL = re.compile(r'extern "C" __global__ void (\w+)\((.*?)\)\s*\{(.*)\}\s*$', re.S)
_BUILT_IN = {
    "blockIdx": "nn_place.at", "gridDim": "nn_place.of", "threadIdx": "nn_place.thread",
    "blockDim": "nn_place.threads",
}  # fmt: skip
_BARRIER = re.compile(r"__sync|__shfl|nn_warp|nn_block|nn_columns|nn_is_last")
_SHARED = re.compile(r"__shared__ ([^;]*);")
_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")
_FROM_WORD = {
    "long long": "{}", "double": "__longlong_as_double({})", "int": "(int){}",
    "unsigned": "(unsigned){}", "float": "__int_as_float((int){})", "short": "(short){}",
    "bool": "{} != 0", "unsigned long long": "(unsigned long long){}",
}  # fmt: skip


class Function(NamedTuple):
    """The C++ function into which a kernel was turned, so that one kernel can call several."""

    name: str
    text: str
    has_barriers: bool
    shared_bytes: int
    """An upper bound of the shared memory that it takes."""


@functools.lru_cache(maxsize=4096)
def as_function(source: str) -> Function | None:
    """The C++ function that does a kernel's work; None if the source cannot be turned into one."""
    if (found := _KERNEL.search(source)) is None:
        return None
    name, parameters, body = found.groups()
    before = source[: found.start()]
    lines = []
    for i, parameter in enumerate(parameters.split(",")):
        kind, _, variable = parameter.strip().rpartition(" ")
        value = f"({kind})nn_args[{i}]" if kind.endswith("*") else _FROM_WORD.get(kind, "")
        if not value:
            return None
        lines.append(f"  {kind} {variable} = {value.format(f'nn_args[{i}]')};\n")
    body = re.sub(rf"\b({'|'.join(_BUILT_IN)})\b", lambda m: _BUILT_IN[m.group()], body)
    text = (
        f"{before}static __device__ __forceinline__ void do_{name}"
        "(const nn_Place nn_place, const long long* nn_args) "
        f"{{\n{''.join(lines)}{body}}}\n"
    )
    shared = sum(map(_bytes_of, _SHARED.findall(body)))
    return Function(f"do_{name}", text, _BARRIER.search(body) is not None, shared)


def _bytes_of(declared: str) -> int:
    """An upper bound, in bytes, of the C++ variables declared; 1 << 30 if a size is no number."""
    total = 0
    for variable in declared.split(", "):
        sizes = re.findall(r"\[([^\]]*)\]", variable)
        if not all(size.isdigit() for size in sizes):
            return 1 << 30
        total += 16 * math.prod(map(int, sizes))
    return total


def as_word(value: Any) -> int:
    """A kernel argument (a NumPy scalar) as an integer with the same 8 bytes."""
    if value.dtype == np.float64:
        return int(value.view(np.int64))
    if value.dtype == np.float32:
        return int(value.view(np.int32))
    word = int(value)
    return word - (1 << 64) if word >= 1 << 63 else word


def in_registers(source: str) -> str:
    """The source of a kernel, changed so that its threads may use all registers of the processor.

    Otherwise it uses fewer if one more block then fits, and may keep a few values in memory: 4 to
    84 bytes in 6, 18 and 16 of the 218 kernels of the networks of benchmarks/gpu for sm_80, sm_90
    and sm_100 (CUDA 13.0). If all were compiled in this way, 59 others would have one block less.
    """
    return _BOUNDS.sub(r"__launch_bounds__(\1, 1)", source)


def size_of_table(num_words: int) -> int:
    """The size, in words, of the kernel parameter for a table of `num_words`: one of two sizes."""
    return _FEW_WORDS if num_words <= _FEW_WORDS else MOST_WORDS


def level_source(functions: Sequence[Function], closes: bool, size: int) -> tuple[str, str]:
    """(source, name) of a kernel that calls `functions` as told by a table of `size` words.

    `closes`: the table has closing steps, launches that the last block of a group does.
    """
    cases = "".join(f"    case {i}: {f.name}(nn, a); break;\n" for i, f in enumerate(functions))
    text = "".join(f.text for f in functions) + _DO.replace("CASES", cases)
    body = _BODY.replace("CLOSING", _CLOSING if closes else "").replace("SIZE", str(size))
    digest = hashlib.sha1((text + body).encode()).hexdigest()[:16]
    name = f"level_{digest}"
    return (text + body).replace("LEVEL", name).replace("nn_do", f"do_{digest}"), name


_DO = """static __device__ __forceinline__
void nn_do(const long long* table, const long long* step, nn_Place nn, unsigned thread) {
  if (step[3] != 0 && *(const double*)step[3] == 0.0) return;
  nn.threads.x = (unsigned)step[2]; nn.threads.y = (unsigned)(step[2] >> 32); nn.threads.z = 1;
  if (thread >= nn.threads.x * nn.threads.y) return;
  nn.thread.x = thread % nn.threads.x;
  nn.thread.y = thread / nn.threads.x;
  nn.thread.z = 0;
  const long long* const a = table + step[1];
  switch ((unsigned)step[0]) {
CASES  }
}
"""
_BODY = """extern "C" __launch_bounds__(256) __global__
void LEVEL(const __grid_constant__ nn_Words<SIZE> table, unsigned* tickets, long long parts,
          long long groups, long long steps) {
  const long long *const words = table.at, *part = words, *next = words + 6 * (parts - 1);
  while (part < next) {  // the last part that begins at this block or before
    const long long* const middle = part + ((next - part) / 12 + 1) * 6;
    if (middle > next || middle[0] > blockIdx.x) next = middle - 6; else part = middle;
  }
  nn_Place nn;
  const unsigned block = blockIdx.x - (unsigned)part[0];
  nn.of.x = (unsigned)part[1]; nn.of.y = (unsigned)part[2]; nn.of.z = 1;
  nn.at.x = block % nn.of.x; nn.at.y = block / nn.of.x; nn.at.z = 0;
  const long long* step = words + steps + part[3] * 4;
  for (long long i = 0; i < part[4]; ++i, step += 4) nn_do(words, step, nn, threadIdx.x);
CLOSING}
"""
_CLOSING = """  const long long* const group = words + groups + part[5] * 3;
  if (group[2] == 0) return;
  __shared__ bool is_last;
  const unsigned blocks = (unsigned)group[0];
  if (!nn_is_last(tickets + part[5], blocks, threadIdx.x == 0, &is_last)) return;
  nn.at.x = nn.at.y = 0; nn.of.x = nn.of.y = 1;
  step = words + steps + group[1] * 4;
  const long long* const end = step + group[2] * 4;
  for (bool first = true; step < end; first = false) {
    // Needed: a step may look at what other threads did in those before.
    if (!first) __syncthreads();
    const long long side = step[0] >> 32, warps = side > 0 ? side : 1;
    for (long long i = side > 0 ? threadIdx.x / 32 : 0; i < warps; i += 8)
      nn_do(words, step + i * 4, nn, side > 0 ? threadIdx.x % 32 : threadIdx.x);
    step += warps * 4;
  }
"""
