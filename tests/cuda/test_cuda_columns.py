"""Formulas that reduce columns, on CUDA."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from support.emulated_cuda import fetch, needs_compiler, to_device

pytestmark = needs_compiler

NORMALIZED = "(_2 - col_mean(_2)) / sqrt(col_mean(sqr(_2 - col_mean(_2))) + _3)"


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (5, 1), (40, 70), (700, 33)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reductions_of_reductions(device, rows, columns, dtype):
    rng = np.random.default_rng(rows)
    x = (rng.normal(size=(rows, columns)) + 3).astype(dtype)
    out, given = to_device(np.zeros_like(x)), to_device(x)
    total = to_device(np.ones(columns, dtype))
    tensor.element(f"_1 = {NORMALIZED}; _4 = _4 + col_sum(_2)")(out, given, 0.01, total)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=0)
    expected = centred / np.sqrt((centred**2).mean(axis=0) + 0.01)
    np.testing.assert_allclose(fetch(out), expected, atol=1e-5)
    np.testing.assert_allclose(fetch(total), 1 + wide.sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("in_place", [False, True])
def test_one_pass_stores_and_adds_up(device, in_place):
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(300, 40)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    wide = to_device(np.zeros((300, 90), np.float32))
    given = to_device(x)
    out = given if in_place else wide[:, 7:47]
    sums, old = to_device(np.zeros((1, 40))), to_device(np.ones(40, np.float32))
    device.launched.clear()
    formula = "_1 = _2 * _3; _4 = col_sum(_2 * _3); _5 = _5 * 2 + col_mean(_2)"
    tensor.element(formula)(out, given, to_device(w), sums, old)
    assert len(device.launched) == 1
    np.testing.assert_allclose(fetch(out), x * w, rtol=1e-6)
    np.testing.assert_allclose(fetch(sums)[0], (np.float64(x) * w).sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(fetch(old), 2 + x.mean(axis=0), atol=1e-5)


def test_no_rows_give_zero(device):
    out = to_device(np.ones(5, np.float32))
    tensor.element("_1 = col_sum(_2)")(out, to_device(np.zeros((0, 5), np.float32)))
    assert not fetch(out).any()


def test_rows_and_columns_are_not_reduced_together(device):
    x, out = to_device(np.zeros((4, 5), np.float32)), to_device(np.ones(5, np.float32))
    with pytest.raises(ProgramError, match="reduces columns"):
        tensor.element("_1 = col_sum(_2 - row_mean(_2))")(out, x)
