"""Objectives and their derivatives against plain formulas, for every kind of supervision."""

import numpy as np
import pytest

from nnet3tools.errors import DataError, UserError
from nnet3tools.io.compressed import CompressedMatrix
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.training.objective import compute_objective
from support.training_helpers import one_hot

OUTPUT = np.random.default_rng(1).normal(size=(12, 5)).astype(np.float32)
DENSE = np.random.default_rng(2).uniform(size=(12, 5)).astype(np.float32)
SPARSE = SparseMatrix.from_dense(np.where(DENSE > 0.6, DENSE, 0.0).astype(np.float32))
KINDS = {"sparse": SPARSE, "dense": DENSE, "compressed": CompressedMatrix.from_dense(DENSE)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("need_deriv", [True, False])
def test_linear(kind, need_deriv):
    target = to_dense(KINDS[kind]).astype(np.float64)
    deriv = np.full(OUTPUT.shape, np.nan, np.float32) if need_deriv else None
    weight, total = compute_objective("linear", KINDS[kind], OUTPUT, "output", deriv)
    assert weight == pytest.approx(target.sum(), rel=1e-6)
    assert total == pytest.approx((target * OUTPUT).sum(), rel=1e-5)
    if need_deriv:
        np.testing.assert_allclose(deriv, target, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_quadratic(kind):
    target = to_dense(KINDS[kind]).astype(np.float64)
    deriv = np.full(OUTPUT.shape, np.nan, np.float32)
    weight, total = compute_objective("quadratic", KINDS[kind], OUTPUT, "output", deriv)
    assert weight == 12
    assert total == pytest.approx(-0.5 * ((target - OUTPUT) ** 2).sum(), rel=1e-5)
    np.testing.assert_allclose(deriv, target - OUTPUT, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", ["linear", "quadratic"])
def test_derivative_is_the_slope(kind, objective):
    supervision = KINDS[kind]
    deriv = np.empty_like(OUTPUT)
    compute_objective(objective, supervision, OUTPUT, "output", deriv)
    direction = np.random.default_rng(3).normal(size=OUTPUT.shape).astype(np.float32)
    step = np.float32(1e-2)
    above, below = (
        compute_objective(objective, supervision, OUTPUT + s * direction, "output")[1]
        for s in (step, -step)
    )
    slope = (above - below) / (2 * step)
    assert (deriv * direction).sum() == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_supervision_is_not_changed():
    before = DENSE.copy()
    compute_objective("quadratic", DENSE, OUTPUT, "output")
    np.testing.assert_array_equal(DENSE, before)


def test_wrong_dimension_names_the_output():
    with pytest.raises(DataError, match=r"'out-3': 5 \(nnet\) vs. 7 \(egs\)"):
        compute_objective("linear", one_hot([0] * 12, 7), OUTPUT, "out-3")
    with pytest.raises(DataError, match="3 rows of supervision for the 12 rows"):
        compute_objective("linear", one_hot([0] * 3, 5), OUTPUT, "out-3")


def test_unknown_objective():
    with pytest.raises(UserError, match="objective=cubic"):
        compute_objective("cubic", SPARSE, OUTPUT, "output")
