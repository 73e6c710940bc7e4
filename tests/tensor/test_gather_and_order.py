"""Gathering, ordering and sparse products against their plain reference implementations."""

import numpy as np
import pytest

from nnet3tools.tensor.operators.csr import csr_dot
from nnet3tools.tensor.operators.gather import add_gathered, add_taken, gather, scatter, take
from nnet3tools.tensor.operators.order import cumulative_sum, sort_indexes
from support.row_operators import reference

SHAPES = [(6, 4), (1, 5), (3, 4, 5), (7,), (0, 3)]


def data(rng, shape, dtype=np.float32, strided=False):
    """Random numbers with some ties; a view with gaps if `strided`."""
    whole = tuple(n * (2 if strided else 1) for n in shape)
    array = np.round(rng.normal(size=whole) * 3).astype(dtype)
    return array[tuple(slice(None, None, 2 if strided else 1) for _ in shape)]


def both(operator, out, *args, **kwargs):
    """The results of implementation and reference, from equal contents of `out`."""
    expected = out.copy()
    operator(out, *args, **kwargs)
    reference(operator)(expected, *args, **kwargs)
    np.testing.assert_allclose(out, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gather_and_order(shape, strided, dtype):
    rng = np.random.default_rng(5)
    for axis in range(len(shape)):
        x = data(rng, shape, dtype, strided)
        both(cumulative_sum, data(rng, shape, dtype), x, axis, False, True, beta=1.0)
        both(cumulative_sum, data(rng, shape, dtype, strided), x, axis, True, False)
        if 0 in shape:
            continue
        for descending in (False, True):
            for k in {1, shape[axis]}:
                picked = (*shape[:axis], k, *shape[axis + 1 :])
                both(sort_indexes, np.empty(picked, np.int32), x, axis, descending)
        indexes = rng.integers(0, shape[axis], 9).astype(np.int32)
        longer = (*shape[:axis], 9, *shape[axis + 1 :])
        both(take, data(rng, longer, dtype, strided), x, indexes, axis)
        both(add_taken, data(rng, shape, dtype, strided), data(rng, longer, dtype), indexes, axis)
        at = rng.integers(0, shape[axis], longer).astype(np.int32)
        both(gather, data(rng, longer, dtype, strided), x, at, axis)
        both(add_gathered, data(rng, shape, dtype, strided), data(rng, longer, dtype), at, axis)
        once = np.argsort(rng.normal(size=shape), axis).astype(np.int32)
        both(scatter, data(rng, shape, dtype, strided), x, once, axis)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("beta", [0.0, 1.0, 0.5])
def test_sparse_product(trans, beta):
    rng = np.random.default_rng(6)
    dense = data(rng, (5, 4)) * (rng.uniform(size=(5, 4)) > 0.6)
    dense[2] = 0
    rows, cols = np.nonzero(dense)
    offsets = np.searchsorted(rows, np.arange(6)).astype(np.int32)
    b = data(rng, (5, 3) if trans else (4, 3), strided=True)
    out = data(rng, (4, 3) if trans else (5, 3))
    expected = beta * out + (dense.T if trans else dense) @ b
    parts = dense[rows, cols], cols.astype(np.int32), offsets
    both(csr_dot, out, *parts, b, trans, beta=beta)
    np.testing.assert_allclose(out, expected, 1e-5, 1e-5)
    nothing = np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(6, np.int32)
    both(csr_dot, out, *nothing, b, trans, beta=beta)
