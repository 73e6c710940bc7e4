"""Layer norm and RMS norm on NumPy, block of rows by block of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from nnet3tools.tensor.numpy_backend.row_blocks import bind_rows, block_register
from nnet3tools.tensor.registry import implements

Row = np.ndarray | None

# BLAS does all sums, two to three times faster than NumPy's reductions: products with a row or a
# column. What remains are elementwise passes, of which those with one number a row are the dearest.


def _row_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """sum(a b) of each row, (rows, 1)."""
    return np.matmul(a[:, None, :], b[:, :, None])[:, :, 0]


def _centre(x: np.ndarray, ones: np.ndarray, out: np.ndarray) -> np.ndarray:
    """x less its rows' means."""
    mean = x @ ones
    mean /= x.shape[1]
    return np.subtract(x, mean, out)


def _inverse(values: np.ndarray, eps: float) -> np.ndarray:
    """1 / sqrt(mean square + eps) of each row, (rows, 1)."""
    square = _row_dots(values, values)
    square /= values.shape[1]
    square += eps
    np.sqrt(square, square)
    return np.reciprocal(square, square)


@dataclass(frozen=True)
class _Forward:
    """out = n * scale + offset of a block; `ones` (D, 1)."""

    centred: bool
    ones: np.ndarray
    scale: Row
    offset: Row
    eps: float

    def __call__(self, group: int, out: np.ndarray, x: np.ndarray) -> None:
        values = _centre(x, self.ones, block_register(group, 0, x)) if self.centred else x
        np.multiply(values, _inverse(values, self.eps), out)
        if self.scale is not None:
            np.multiply(out, self.scale, out)
        if self.offset is not None:
            np.add(out, self.offset, out)


@dataclass(frozen=True)
class _Backward:
    """Gives a block's derivatives by x; keeps sums over the columns, in float64, for each group.

    With c = x - mean (or x), v = 1 / sqrt(variance + eps) and g = e * scale, the derivative by x is
    v g - c v^3 (mean of g c) - v (mean of g), the last for layer norm only.
    """

    centred: bool
    ones: np.ndarray
    scale: Row
    eps: float
    wants_input: bool
    wants_scale: bool
    wants_offset: bool
    add: bool
    sums: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    def __call__(self, group: int, x: np.ndarray, e: np.ndarray, *in_deriv: np.ndarray) -> None:
        if self.wants_offset:
            self._keep("offset", group, np.add.reduce(e, axis=0))
        if not (self.wants_input or self.wants_scale):
            return
        values, product = block_register(group, 0, x), block_register(group, 1, x)
        c = _centre(x, self.ones, values) if self.centred else x
        inverse = _inverse(c, self.eps)
        np.multiply(e, c, product)
        if self.wants_scale:
            self._keep("scale", group, (inverse.T @ product)[0])
        if self.wants_input:
            weights = self.ones if self.scale is None else self.scale[:, None]
            inner = product @ weights
            inner *= inverse**3 / x.shape[1]
            np.multiply(c, inner, values)
            self._put_slope(values, inverse, e, weights, product, *in_deriv)

    def _put_slope(
        self, term: np.ndarray, inverse: np.ndarray, e: np.ndarray, weights: np.ndarray,
        slope: np.ndarray, in_deriv: np.ndarray,
    ) -> None:  # fmt: skip
        """in_deriv = v g - term - v (mean of g), or that is added."""
        if self.scale is None:
            np.multiply(e, inverse, slope)
        else:
            np.multiply(e, self.scale, slope)
            np.multiply(slope, inverse, slope)
        put = slope if self.add else in_deriv
        np.subtract(slope, term, slope if self.centred else put)
        if self.centred:
            mean = e @ weights
            mean *= inverse / e.shape[1]
            np.subtract(slope, mean, put)
        if self.add:
            np.add(in_deriv, slope, in_deriv)

    def _keep(self, name: str, group: int, total: np.ndarray) -> None:
        known = self.sums.get((name, group))
        if known is None:
            self.sums[name, group] = total.astype(np.float64)
        else:
            known += total

    def add_sums(self, name: str, out: np.ndarray) -> None:
        """Add what the groups have summed up, in the same order every time, and forget it."""
        for key in sorted(k for k in self.sums if k[0] == name):
            np.add(out, self.sums.pop(key), out, casting="same_kind")


def _ones(x: np.ndarray) -> np.ndarray:
    return np.ones((x.shape[1], 1), x.dtype)


def _bind_forward(
    centred: bool, out: np.ndarray, x: np.ndarray, scale: Row = None, offset: Row = None,
    eps: float = 1e-9,
) -> Callable[[], None]:  # fmt: skip
    return bind_rows(_Forward(centred, _ones(x), scale, offset, float(eps)), 6, out, x)


def _bind_backward(
    centred: bool, x: np.ndarray, out_deriv: np.ndarray, scale: Row = None, eps: float = 1e-9,
    in_deriv: Row = None, scale_deriv: Row = None, offset_deriv: Row = None, add: bool = True,
) -> Callable[[], None]:  # fmt: skip
    if in_deriv is None and scale_deriv is None and offset_deriv is None:
        return lambda: None
    wanted = in_deriv is not None, scale_deriv is not None, offset_deriv is not None
    kernel = _Backward(centred, _ones(x), scale, float(eps), *wanted, add)
    blocks = (x, out_deriv) if in_deriv is None else (x, out_deriv, in_deriv)
    run = bind_rows(kernel, 10, *blocks)

    def run_and_sum() -> None:
        run()
        if scale_deriv is not None:
            kernel.add_sums("scale", scale_deriv)
        if offset_deriv is not None:
            kernel.add_sums("offset", offset_deriv)

    return run_and_sum


for _name, _centred in (("layer_norm", True), ("rms_norm", False)):
    implements(_name, "numpy", binder=True)(functools.partial(_bind_forward, _centred))
    implements(f"{_name}_backprop", "numpy", binder=True)(
        functools.partial(_bind_backward, _centred)
    )
