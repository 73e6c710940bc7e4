"""Online natural gradient against the paper's equations with explicit D x D matrices."""

import math
from copy import deepcopy

import numpy as np
import pytest

from nnet3tools.errors import UserError
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient


class DenseReference:
    """The full Fisher matrix in float64 from R_t, D_t, rho_t as the paper defines them."""

    def __init__(self, r: np.ndarray, d: np.ndarray, rho: float, alpha: float) -> None:
        self.r, self.d, self.rho, self.alpha = r, d, rho, alpha

    @property
    def fisher(self) -> np.ndarray:
        dim = self.r.shape[1]
        return self.r.T @ np.diag(self.d) @ self.r + self.rho * np.eye(dim)

    def precondition(self, x: np.ndarray) -> np.ndarray:
        """The rows x G^-1, scaled to the norm of x; G is the smoothed matrix."""
        fisher, dim = self.fisher, self.r.shape[1]
        smoothed = fisher + self.alpha / dim * np.trace(fisher) * np.eye(dim)
        result = x @ np.linalg.inv(smoothed)
        return result * np.linalg.norm(x) / np.linalg.norm(result)

    def update(self, x: np.ndarray, eta: float) -> None:
        """Do one step of the power method towards eta x'x / N + (1 - eta) F."""
        rank, dim = self.r.shape
        target = eta * x.T @ x / len(x) + (1.0 - eta) * self.fisher
        y = self.r @ target
        c, u = np.linalg.eigh(y @ y.T)
        c, u = c[::-1], u[:, ::-1]
        c = np.maximum(c, ((1.0 - eta) * self.rho) ** 2)
        self.r = np.diag(c**-0.5) @ u.T @ y
        root = np.sqrt(c)
        rho = (np.trace(target) - root.sum()) / (dim - rank)
        floor = max(1e-10, 5e-4 * root.max())
        self.d, self.rho = np.maximum(root - rho, floor), max(rho, floor)


def rows_of(preconditioner: OnlineNaturalGradient) -> np.ndarray:
    """The preconditioner's matrix R = E^-1/2 W."""
    w, d = np.float64(preconditioner.w), preconditioner.d
    dim = w.shape[1]
    alpha, rho = preconditioner.alpha, preconditioner.rho
    beta = rho * (1.0 + alpha) + alpha / dim * d.sum()
    return w / np.sqrt(1.0 / (beta / d + 1.0))[:, None]


def data(rng: np.random.Generator, rows: int, dim: int) -> np.ndarray:
    """Random float32 rows whose variance decreases from column to column."""
    return (rng.normal(size=(rows, dim)) * np.linspace(2.0, 0.3, dim)).astype(np.float32)


@pytest.mark.parametrize(("rows", "dim", "rank"), [(40, 9, 3), (12, 20, 5), (64, 7, 6)])
def test_follows_the_dense_equations(rows: int, dim: int, rank: int) -> None:
    rng = np.random.default_rng(rows)
    preconditioner = OnlineNaturalGradient(rank, num_samples_history=300.0)
    eta = 1.0 - math.exp(-rows / 300.0)
    x = data(rng, rows, dim)
    preconditioner.precondition(x.copy())
    reference = DenseReference(
        rows_of(preconditioner), preconditioner.d.copy(), preconditioner.rho, preconditioner.alpha
    )
    for _ in range(6):
        x = data(rng, rows, dim)
        expected = reference.precondition(np.float64(x))
        got = x.copy()
        scale = preconditioner.precondition(got)
        np.testing.assert_allclose(scale * got, expected, 1e-3, 1e-4)
        reference.update(np.float64(x), eta)
        np.testing.assert_allclose(preconditioner.d, reference.d, 1e-3)
        np.testing.assert_allclose(preconditioner.rho, reference.rho, 1e-3)
        r = rows_of(preconditioner)
        np.testing.assert_allclose(r @ r.T, np.eye(rank), atol=1e-3)


def test_first_estimate_is_three_power_steps_from_the_special_rows() -> None:
    x = data(np.random.default_rng(1), 50, 8)
    preconditioner = OnlineNaturalGradient(rank=2)
    start = np.zeros((2, 8))
    start[0, 0::2], start[1, 1::2] = 1.0, 1.0
    start[0, 0] = start[1, 1] = 1.1
    start /= np.linalg.norm(start, axis=1, keepdims=True)
    reference = DenseReference(start, np.full(2, 1e-10), 1e-10, 4.0)
    eta = 1.0 - math.exp(-50 / 2000.0)
    for _ in range(3):
        reference.update(np.float64(x), eta)
    preconditioner.frozen = True  # freezing does not prevent the initialisation
    got = x.copy()
    scale = preconditioner.precondition(got)
    np.testing.assert_allclose(preconditioner.rho, reference.rho, 1e-4)
    np.testing.assert_allclose(preconditioner.d, reference.d, 1e-3)
    np.testing.assert_allclose(scale * got, reference.precondition(np.float64(x)), 1e-3, 1e-4)


def test_norm_is_kept_by_the_scale() -> None:
    rng = np.random.default_rng(2)
    preconditioner = OnlineNaturalGradient(rank=3)
    for _ in range(3):
        x = data(rng, 20, 10)
        norm = np.linalg.norm(x)
        scale = preconditioner.precondition(x)
        assert scale * np.linalg.norm(x) == pytest.approx(norm, rel=1e-5)


def test_schedule_updates_ten_times_then_every_period() -> None:
    rng = np.random.default_rng(3)
    preconditioner = OnlineNaturalGradient(rank=2, update_period=4)
    preconditioner.precondition(data(rng, 20, 6))
    changed = []
    for _ in range(24):
        before = preconditioner.rho
        preconditioner.precondition(data(rng, 20, 6))
        changed.append(preconditioner.rho != before)
    calls = np.arange(1, 25)  # the first call was number 0
    assert changed == list((calls <= 10) | ((calls - 10) % 4 == 0))


def test_frozen_estimate_stays_but_calls_count() -> None:
    rng = np.random.default_rng(4)
    preconditioner = OnlineNaturalGradient(rank=2)
    preconditioner.precondition(data(rng, 20, 6))
    preconditioner.frozen = True
    rho, calls = preconditioner.rho, preconditioner.num_calls
    preconditioner.precondition(data(rng, 20, 6))
    assert (preconditioner.rho, preconditioner.num_calls) == (rho, calls + 1)


def test_copy_is_independent() -> None:
    rng = np.random.default_rng(5)
    preconditioner = OnlineNaturalGradient(rank=2)
    preconditioner.precondition(data(rng, 20, 6))
    copy = deepcopy(preconditioner)
    w = preconditioner.w.copy()
    copy.precondition(data(rng, 20, 6))
    assert np.array_equal(preconditioner.w, w)
    assert not np.array_equal(copy.w, w)


def test_all_zero_rows_are_left_alone_and_do_no_harm() -> None:
    preconditioner = OnlineNaturalGradient(rank=2)
    zeros = np.zeros((10, 6), np.float32)
    for _ in range(4):
        assert preconditioner.precondition(zeros) == 1.0
    assert not zeros.any()
    x = data(np.random.default_rng(6), 10, 6)
    assert math.isfinite(preconditioner.precondition(x))
    assert np.isfinite(x).all()


def test_one_column_needs_no_preconditioning() -> None:
    x = np.ones((5, 1), np.float32)
    assert OnlineNaturalGradient(rank=1).precondition(x) == 1.0
    assert (x == 1.0).all()


def test_rank_is_lowered_below_the_dimension(capsys: pytest.CaptureFixture[str]) -> None:
    preconditioner = OnlineNaturalGradient(rank=20)
    preconditioner.precondition(data(np.random.default_rng(7), 30, 6))
    assert preconditioner.rank == 5
    assert "rank 20" in capsys.readouterr().err


def test_rank_deficient_rows_keep_orthonormal_estimate() -> None:
    rng = np.random.default_rng(8)
    preconditioner = OnlineNaturalGradient(rank=6)
    for _ in range(8):
        x = (rng.normal(size=(30, 2)) @ rng.normal(size=(2, 12)) * 1e3).astype(np.float32)
        assert math.isfinite(preconditioner.precondition(x))
        r = rows_of(preconditioner)
        np.testing.assert_allclose(r @ r.T, np.eye(6), atol=3e-2)


def test_nan_is_a_clear_error() -> None:
    x = np.full((8, 5), np.nan, np.float32)
    with pytest.raises(UserError, match="diverged"):
        OnlineNaturalGradient(rank=2).precondition(x)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rank": 0}, "rank"),
        ({"update_period": 0}, "update-period"),
        ({"num_samples_history": 0.0}, "num-samples-history"),
        ({"alpha": -1.0}, "alpha"),
        ({"num_minibatches_history": 0.5}, "num-minibatches-history"),
    ],
)
def test_impossible_options_are_named(options: dict[str, float], word: str) -> None:
    assert OnlineNaturalGradient().problem() is None
    assert word in (OnlineNaturalGradient(**options).problem() or "")  # type: ignore[arg-type]
