"""Matrices given as parts that lie side by side, and products with them.

X stands for the matrix (N rows) that has the columns of all parts in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nnet3tools import tensor

Array = Any


class JoinedParts(list[Array]):
    """K parts of N rows each, which are ranges of one matrix: part k is the rows from starts[k] on.

    Their product with a matrix (M, K * D), whose columns belong to the parts in turn, is one
    product: `rows` times that matrix reshaped to (M * K, D), in which row m * K + k is for part k.
    """

    def __init__(self, rows: Array, starts: Sequence[int], num_rows: int) -> None:
        super().__init__(rows[start : start + num_rows] for start in starts)
        self.rows, self._starts, self._num_rows = rows, starts, num_rows

    def shifted(self, products: Array) -> Iterator[Array]:
        """For K parts, views of `products` (rows, M * K): part k's rows, columns k, k + K, ..."""
        for k, start in enumerate(self._starts):
            yield products[start : start + self._num_rows, k :: len(self)]

    @contextmanager
    def spread(self, left: Array) -> Iterator[Array]:
        """Context manager of a scratch matrix (rows, M * K) that is 0 except for `left` (N, M).

        The views of it that `shifted` yields are equal to `left`.
        """
        with tensor.scratch((len(self.rows), len(self) * left.shape[1]), like=left) as wide:
            for k, start in enumerate(self._starts):  # no element twice: one kernel on a GPU
                columns, end = wide[:, k :: len(self)], start + self._num_rows
                tensor.fill(columns[:start], 0.0)
                tensor.copy(columns[start:end], left)
                tensor.fill(columns[end:], 0.0)
            yield wide


def in_columns(parts: Sequence[Array], wide: Array) -> Iterator[tuple[Array, Array]]:
    """Yield each part together with the same columns of `wide`, which is as wide as all parts."""
    begin = 0
    for part in parts:
        end = begin + part.shape[1]
        yield part, wide if end - begin == wide.shape[1] else wide[:, begin:end]
        begin = end


def product_with(parts: Sequence[Array], wide: Array, out: Array, beta: float = 0.0) -> None:
    """Set `out` to X wide^T + beta * out, X being all `parts` side by side; `beta` is 0 or 1."""
    if not isinstance(parts, JoinedParts):
        for i, (part, columns) in enumerate(in_columns(parts, wide)):
            tensor.prod(out, part, columns, trans_b=True, beta=float(i > 0) or beta)
        return
    folded = wide.reshape(-1, parts.rows.shape[1])
    with tensor.scratch((len(parts.rows), len(folded)), like=out) as products:
        tensor.prod(products, parts.rows, folded, trans_b=True)
        for i, columns in enumerate(parts.shifted(products)):
            (tensor.add if beta or i else tensor.copy)(out, columns)


def transposed_product(
    left: Array, parts: Sequence[Array], out: Array, alpha: Any = 1.0, beta: float = 0.0
) -> None:
    """Set `out` to alpha * left^T X + beta * out, X being all `parts` side by side."""
    if not isinstance(parts, JoinedParts) or not out.flags.c_contiguous:
        for part, columns in in_columns(parts, out):
            tensor.prod(columns, left, part, trans_a=True, alpha=alpha, beta=beta)
        return
    with parts.spread(left) as wide:
        folded = out.reshape(-1, parts.rows.shape[1])
        tensor.prod(folded, wide, parts.rows, trans_a=True, alpha=alpha, beta=beta)
