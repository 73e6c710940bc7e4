"""Online natural gradient's small dense part on CUDA (formulas: __init__.py).

Each kernel works on all estimates at once; a block of threads on one, on a tile of its products or
on some of its columns. The symmetric eigenvalue problem is solved by Jacobi's method in float64:
between updates the estimate's directions hardly turn, so that the matrix is nearly diagonal and a
few sweeps do.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.arrays import to_host
from nnet3tools.tensor.cpu.kernels import fields_of_struct
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.launches import Launch, zero_tickets
from nnet3tools.tensor.operands import element_strides, remembered
from nnet3tools.tensor.operators.fisher import (
    DELTA,
    DOUBTFUL,
    EPSILON,
    MAX_CONDITION,
    ORTHOGONALITY,
    residual_norm,
)
from nnet3tools.tensor.registry import implements

_THREADS = 256
_TILE, _CHUNK = 40, 256
"""Rows and columns of a block's tile; elements that it adds up (row_products.cuh)."""
_MOST_THREADS = 1024
_MOST_COLUMNS, _COLUMN_BYTES = 32, 40 << 10
"""Limits for the columns of a new estimate in a block, and for their shared memory."""


_STRUCT = re.compile(r"^struct \w+ \{\n(.*?)^\};", re.M | re.S)
_LIMITS = {
    "MAX_CONDITION": MAX_CONDITION, "EPSILON": EPSILON, "DELTA": DELTA, "SMALL_TURN": 1e-10,
    "ORTHOGONALITY": ORTHOGONALITY,
}  # fmt: skip
"""Words in kernels. SMALL_TURN is the squared cosine between columns below which one more sweep
would not show in float32."""


@functools.cache
def _source(name: str, **words: int) -> tuple[str, str]:
    """(source, name) of the kernel in the file `name`.cuh, with numbers in place of some words.

    `words` are capitalized words in the file with their numbers; _LIMITS has more of them.
    """
    text = (Path(__file__).parent / f"{name}.cuh").read_text()
    for word, number in {**words, **_LIMITS}.items():
        text = text.replace(word, str(number))
    kernel = "_".join([name, *map(str, words.values())])
    # a fused level is one source: each of its kernels needs a struct of its own
    return re.sub(r"\bEstimate\b", f"Estimate_{kernel}", text), kernel


def _rows(array: Array) -> tuple[int, int]:
    """(address, row stride in elements) of a matrix; ProgramError if its rows have gaps."""
    rows, columns = element_strides(array)
    if columns != 1 and array.shape[1] != 1:
        raise ProgramError(f"an array of shape {array.shape} has strides {array.strides}")
    return address(array), rows


def _address(array: Array) -> int:
    """The address of a contiguous array; ProgramError for others."""
    if not array.flags.c_contiguous:
        raise ProgramError(f"an array of shape {array.shape} has strides {array.strides}")
    return address(array)


def _launch(
    kernel: tuple[str, str], grid: tuple[int, int], threads: int, rows: Sequence[dict[str, Any]],
    reads: Iterable[Array], writes: Iterable[Array], shared_bytes: int = 0,
) -> None:  # fmt: skip
    """Launch `kernel`, (CUDA text, name of the function), whose argument is an array of structs.

    `rows` give the fields of each struct by name, as the CUDA text declares it. The kernel
    accesses the arrays `reads` and `writes`.
    """
    found = _STRUCT.search(kernel[0])
    assert found is not None
    fields = fields_of_struct(found[1])
    words = np.empty((len(rows), len(fields)), np.int64)
    for k, (name, kind) in enumerate(fields.items()):
        dtype = np.float64 if kind == "double" else np.int64
        words[:, k] = np.array([row[name] for row in rows], dtype).view(np.int64)
    table, written = uploaded(words, np.int64), list(writes)
    Launch(
        get_device().kernel(*kernel, shared_bytes), *kernel, (*grid, 1), (threads, 1, 1),
        [np.uint64(address(table))], [table, *reads, *written], written,
    )()  # fmt: skip


class _Products:
    """Products A B^T of pairs of matrices, which one kernel computes together."""

    def __init__(self) -> None:
        self._rows: list[dict[str, int]] = []
        self._sums: list[int] = []
        """By product: the number of its partial sums."""
        self._tickets: list[int] = []
        self._blocks = 1
        self._arrays: list[Array] = []

    def add(self, out: int, a: Array, b: Array, wanted: int = 0) -> None:
        """Queue the product a b^T, which the kernel will store at device address `out`.

        `wanted`, if not 0, is the address of a number; if that is 0, the kernel skips the product.
        """
        (at_a, pitch_a), (at_b, pitch_b) = _rows(a), _rows(b)
        (rows, dim), columns = a.shape, len(b)
        tiles = -(-rows // _TILE) * -(-columns // _TILE)
        blocks = tiles * -(-dim // _CHUNK)
        self._rows.append({
            "out": out, "a": at_a, "b": at_b, "wanted": wanted, "rows": rows, "columns": columns,
            "dim": dim, "pitch_a": pitch_a, "pitch_b": pitch_b,
        })  # fmt: skip
        self._sums.append(blocks * _TILE**2)
        self._tickets.append(tiles)
        self._blocks = max(self._blocks, blocks)
        self._arrays += [a, b]

    def launch(self, reads: Iterable[Array], writes: Iterable[Array]) -> None:
        """Launch one kernel for all products; it also accesses the arrays `reads` and `writes`."""
        key = "products", *(tuple(row.values()) for row in self._rows)
        partial = _kept(key, lambda: get_device().empty((sum(self._sums),), np.float32))
        tickets = _kept(("tickets", *key), lambda: zero_tickets(sum(self._tickets)))
        sums, places = np.cumsum([0, *self._sums]), np.cumsum([0, *self._tickets])
        for row, first, place in zip(self._rows, sums, places, strict=False):
            row["partial"] = address(partial) + 4 * int(first)
            row["tickets"] = address(tickets) + 4 * int(place)
        grid, kernel = (self._blocks, len(self._rows)), _source("row_products")
        written = [*writes, partial, tickets]
        _launch(kernel, grid, _THREADS, self._rows, [*self._arrays, *reads], written)


_memory: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
"""Device -> key -> memory of `_kept`. A captured graph has references of its own."""
_MOST_MEMORY = 256


def _kept(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Device memory for `key`: the result of `make()`, which is called once for a key and device.

    Its addresses, in tables on the device, thus stay valid. Scratch memory would not do: work on
    other streams may use it.
    """
    return remembered(_memory.setdefault(get_device(), {}), key, make, _MOST_MEMORY)


@implements("fisher_products", "cupy")
def fisher_products(products: Sequence[Array], j: Sequence[Array], w: Sequence[Array]) -> None:
    """Set products to (J J^T, W J^T) of each natural-gradient estimate.

    They are float32 for every --gpu-math, with a fixed order of addition.
    """
    all_of_them = _Products()
    for out, one, other in zip(products, j, w, strict=True):
        all_of_them.add(_address(out), one, one)
        all_of_them.add(_address(out) + out[0].nbytes, other, one)
    all_of_them.launch([], products)


@implements("fisher_replace", "cupy")
def fisher_replace(
    w: Sequence[Array], j: Sequence[Array], transform: Sequence[Array],
    coefficients: Sequence[Array],
) -> None:  # fmt: skip
    """Set each w[i] to transform[i] (j[i] + diag(coefficients[i]) w[i]), on CUDA in float32."""
    rows = []
    for new, one, factors, numbers in zip(w, j, transform, coefficients, strict=True):
        (at_w, pitch_w), (at_j, pitch_j) = _rows(new), _rows(one)
        rows.append({
            "w": at_w, "j": at_j, "transform": _address(factors),
            "coefficients": _address(numbers), "rank": new.shape[0], "dim": new.shape[1],
            "pitch_w": pitch_w, "pitch_j": pitch_j,
        })  # fmt: skip
    rank, dim = max(len(one) for one in w), max(one.shape[1] for one in w)
    columns = _MOST_COLUMNS
    while columns > 1 and 4 * rank * columns > _COLUMN_BYTES:
        columns //= 2
    kernel = _source("fisher_replace", COLUMNS=columns)
    grid = -(-dim // columns), len(rows)
    reads = [*j, *transform, *coefficients]
    _launch(kernel, grid, _THREADS, rows, reads, w, 4 * rank * columns)


@implements("fisher_step", "cupy")
def fisher_step(
    d: Sequence[Array], numbers: Sequence[Array], transform: Sequence[Array],
    coefficients: Sequence[Array], products: Sequence[Array], trace: Sequence[Any],
    settings: Sequence[tuple[float, int, float, int]],
) -> None:  # fmt: skip
    """The operator `fisher_step` on CUDA (arguments: see there); shared memory if it suffices."""
    traces = [getattr(number, "array", number) for number in trace]
    rank = max(map(len, d))
    columns, lanes = -(-rank // 4) * 4, 16 if rank <= _MOST_OF_HALF_A_WARP else 32
    # `lanes` threads work on four columns
    threads = 32 * min(16, -(-columns // 4 * lanes // 32))
    count = columns * (-(-rank // lanes) * lanes)
    is_shared = 8 * (count + _SMALL_ARRAYS * columns) <= get_device().most_shared_bytes
    shape = len(d), 1 if is_shared else count
    work = _kept(("step", shape, *map(address, d)), lambda: get_device().empty(shape, np.float64))
    rows = []
    operands = {
        "d": d, "numbers": numbers, "transform": transform, "coefficients": coefficients,
        "products": products, "trace": traces, "work": work,
    }  # fmt: skip
    for i, (eta, num_rows, alpha, dim) in enumerate(settings):
        addresses = {name: _address(arrays[i]) for name, arrays in operands.items()}
        options = {"eta_n": eta / num_rows, "keep": 1.0 - eta, "alpha": alpha, "dim": dim}
        rows.append({"rank": len(d[i]), **addresses, **options})
    text, name = _source("fisher_step", MOST=rank, SHARED=int(is_shared))
    kernel = text.replace("THREADS", str(threads)).replace("LANES", str(lanes)), name
    writes = [*d, *numbers, *transform, *coefficients, *([] if is_shared else [work])]
    shared_bytes = 8 * count if is_shared else 0
    _launch(kernel, (len(rows), 1), threads, rows, [*products, *traces], writes, shared_bytes)


_MOST_OF_HALF_A_WARP = 128
"""The largest rank at which half a warp has four columns in registers."""
_SMALL_ARRAYS = 8
"""Other float64 numbers in shared memory for each row of the matrix, at most."""


@implements("check_finite", "cupy")
def check_finite(numbers: Array) -> None:
    """Do nothing: on a GPU the host does not wait here, and checks `numbers` when it logs."""


@implements("residual_norm", "cupy")
def host_residual_norm(h: Array, w: Array, parts: Sequence[Array], before: float) -> float:
    """The operator `residual_norm` on CUDA, computed on the host because only CPU code needs it."""
    return residual_norm.reference(to_host(h), to_host(w), list(map(to_host, parts)), float(before))


@implements("orthonormalize", "cupy")
def orthonormalize(
    w: Sequence[Array], d: Sequence[Array], numbers: Sequence[Array], alpha: Sequence[float]
) -> None:
    """The operator `orthonormalize` on CUDA (arguments: see there), by the products of W's rows."""
    counts = [len(one) ** 2 for one in w]
    grams = _kept(
        ("grams", *counts, *map(address, w)), lambda: get_device().empty((sum(counts),), np.float32)
    )
    rows, products = [], _Products()
    begins = np.cumsum([0, *counts])
    for one, of_one, state, a, begin in zip(w, d, numbers, alpha, begins, strict=False):
        (at, pitch), gram = _rows(one), address(grams) + 4 * int(begin)
        products.add(gram, one, one, wanted=_address(state) + DOUBTFUL * state.itemsize)
        rows.append({
            "w": at, "d": _address(of_one), "numbers": _address(state), "gram": gram,
            "rank": len(one), "dim": one.shape[1], "pitch": pitch, "alpha": a,
        })  # fmt: skip
    products.launch(numbers, [grams])
    kernel = _source("orthonormalize", MOST=max(map(len, w)))
    _launch(kernel, (len(rows), 1), _MOST_THREADS, rows, [*d, *numbers, grams], w)
