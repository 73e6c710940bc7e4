"""Natural gradient on the emulated device against the host; nothing is fetched there."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from nnet3tools.nnet.natural_gradient_updates import apply_all_pending
from nnet3tools.tensor.arrays import padded
from nnet3tools.tensor.number import Number
from nnet3tools.tensor.operators.fisher import (
    DIVERGED,
    DOUBTFUL,
    RHO,
    fisher_products,
    fisher_replace,
    fisher_step,
    orthonormalize,
    residual_norm,
)
from nnet3tools.tensor.recorder import Recorder
from support.emulated_cuda import fetch, needs_compiler, to_device

pytestmark = needs_compiler


def estimate(rank, dim, seed=0, spread=1.0):
    """d, numbers, products and trace of a made-up estimate and minibatch."""
    rng = np.random.default_rng(seed)
    d = np.sort(rng.uniform(0.1, 2.0, rank))[::-1].copy()
    h = (rng.normal(size=(3 * rank, rank)) * spread ** -np.arange(rank)).astype(np.float32)
    j = (h.T @ rng.normal(size=(3 * rank, dim))).astype(np.float32)
    products = np.stack([j @ j.T, h.T @ h])
    return d, np.array([0.3, 0.0, 0.0]), products, float((h * h).sum() * 2.0)


def step_on_host(*arguments):
    """fisher_step of one estimate."""
    fisher_step(*[[a] for a in (*arguments[:6], arguments[6:])])


def step_on_device(d, numbers, products, trace, *options):
    """What fisher_step makes there: d, numbers, transform, coefficients."""
    rank = len(d)
    outs = [to_device(a) for a in (d, numbers)]
    outs += [to_device(np.zeros(shape, np.float32)) for shape in ((rank, rank), (rank, 1))]
    scalar = Number(to_device(np.array([trace])))
    fisher_step(*[[a] for a in (*outs, to_device(products), scalar, options)])
    return [fetch(a) for a in outs]


def launch_all(rank):
    """Ask for both kernels of a rank."""
    d, numbers, products, trace = estimate(rank, rank + 3)
    step_on_device(d, numbers, products, trace, 0.3, 3 * rank, 4.0, rank + 3)
    w, j, transform = (to_device(np.zeros((rank, rank + n), np.float32)) for n in (3, 3, 0))
    orthonormalize([w], [to_device(d)], [to_device(numbers)], [4.0])
    fisher_products([to_device(products)], [j], [w])
    fisher_replace([w], [j], [transform], [to_device(np.ones((rank, 1), np.float32))])


@pytest.mark.parametrize(("rank", "dim"), [(1, 4), (2, 5), (7, 30), (20, 41), (97, 120)])
def test_estimates_are_those_of_the_host(device, rank, dim):
    d, numbers, products, trace = estimate(rank, dim)
    options = (0.3, 3 * rank, 4.0, dim)
    got = step_on_device(d, numbers, products, trace, *options)
    transform, coefficients = np.zeros((rank, rank), np.float32), np.zeros((rank, 1), np.float32)
    step_on_host(d, numbers, transform, coefficients, products, trace, *options)
    np.testing.assert_allclose(got[0], d, rtol=1e-9)
    np.testing.assert_allclose(got[1], numbers, rtol=1e-9)
    np.testing.assert_allclose(got[3], coefficients, rtol=1e-6)
    # an eigenvector's sign is anybody's choice
    signs = np.sign((got[2] * transform).sum(axis=1, keepdims=True))
    scale = np.abs(transform).max()
    np.testing.assert_allclose(got[2] * signs, transform, atol=2e-5 * scale)
    assert device.launched.count(f"fisher_step_{rank}_1") == 1


def test_columns_may_be_shared_by_whole_warps(device, monkeypatch):
    """As those of ranks above 128 are."""
    monkeypatch.setattr("nnet3tools.tensor.operators.fisher.cuda._MOST_OF_HALF_A_WARP", 8)
    test_estimates_are_those_of_the_host(device, 37, 41)


def test_nearly_equal_and_tiny_eigenvalues_are_floored_as_on_the_host(device):
    d, numbers, products, trace = estimate(8, 20, spread=30.0)
    d[:] = 1e-10
    numbers[RHO] = 1e-10
    options = (0.5, 24, 4.0, 20)
    got = step_on_device(d, numbers, products, trace, *options)
    transform, coefficients = np.zeros((8, 8), np.float32), np.zeros((8, 1), np.float32)
    step_on_host(d, numbers, transform, coefficients, products, trace, *options)
    np.testing.assert_allclose(got[0], d, rtol=1e-6)
    np.testing.assert_allclose(got[1], numbers, rtol=1e-6)
    assert numbers[DOUBTFUL] == 1.0


def test_matrices_that_rounding_made_indefinite_are_those_of_the_host(device):
    d, numbers, products, trace = estimate(9, 30)
    c, u = np.linalg.eigh(products[0])
    c[0] = -1e-3 * c[-1]
    products[0] = u * c @ u.T
    d[:], numbers[RHO] = 1e-10, 1e-10
    options = (0.5, 27, 4.0, 30)
    got = step_on_device(d, numbers, products, trace, *options)
    transform, coefficients = np.zeros((9, 9), np.float32), np.zeros((9, 1), np.float32)
    step_on_host(d, numbers, transform, coefficients, products, trace, *options)
    assert numbers[DOUBTFUL] == 1.0
    np.testing.assert_allclose(got[0], d, rtol=1e-9)
    np.testing.assert_allclose(got[1], numbers, rtol=1e-9)
    signs = np.sign((got[2] * transform).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(got[2] * signs, transform, rtol=1e-4)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_infinity_is_counted_and_changes_nothing_else(device, bad):
    d, numbers, products, trace = estimate(4, 9)
    products[1, 2, 3] = bad
    got = step_on_device(d, numbers, products, trace, 0.3, 12, 4.0, 9)
    assert np.array_equal(got[0], d)
    assert got[1].tolist() == [0.3, 0.0, 1.0]
    host = numbers.copy()
    step_on_host(d, host, np.zeros((4, 4)), np.zeros((4, 1)), products, trace, 0.3, 12, 4.0, 9)
    assert host.tolist() == got[1].tolist()


SHAPES = [(3, 7), (20, 600), (33, 65), (43, 257), (80, 130)]
"""Ranks and dimensions of estimates that are worked on together; some products have many sums."""


def on_device(host):
    """A matrix with padded rows, as estimates have them there."""
    there = padded(host.shape, like=to_device(host))
    there[...] = to_device(host)
    return there


def test_products_of_all_estimates_are_those_of_each(device):
    rng = np.random.default_rng(5)
    j, w = ([rng.normal(size=s).astype(np.float32) for s in SHAPES] for _ in range(2))
    products = [np.zeros((2, rank, rank), np.float32) for rank, _ in SHAPES]
    there = [to_device(p) for p in products]
    fisher_products(products, j, w)
    fisher_products(there, [on_device(a) for a in j], [to_device(a) for a in w])
    for got, expected in zip(there, products, strict=True):
        np.testing.assert_allclose(fetch(got), expected, rtol=1e-4, atol=1e-4)


def test_new_estimates_come_from_old_ones_unless_those_diverged(device):
    rng = np.random.default_rng(6)
    j, w = ([rng.normal(size=s).astype(np.float32) for s in SHAPES] for _ in range(2))
    transform = [rng.normal(size=(rank, rank)).astype(np.float32) for rank, _ in SHAPES]
    coefficients = [rng.uniform(0.5, 2.0, (rank, 1)).astype(np.float32) for rank, _ in SHAPES]
    there = [on_device(a) for a in w]
    zeroed = [*coefficients[:-1], 0.0 * coefficients[-1]]
    given = [j, transform, zeroed]
    fisher_replace(there, *([to_device(a) for a in arrays] for arrays in given))
    last = w[-1].copy()
    fisher_replace(w, j, transform, coefficients)
    for got, expected in zip(there, [*w[:-1], last], strict=True):
        np.testing.assert_allclose(fetch(got), expected, rtol=1e-4, atol=1e-4)


def test_matrices_that_no_block_has_room_for_lie_elsewhere(device, monkeypatch):
    shared = step_on_device(*estimate(9, 30), 0.3, 27, 4.0, 30)
    monkeypatch.setattr(device._device, "most_shared_bytes", 1000)
    for got, expected in zip(
        step_on_device(*estimate(9, 30), 0.3, 27, 4.0, 30), shared, strict=True
    ):
        np.testing.assert_array_equal(got, expected)
    assert "fisher_step_9_0" in device.launched


def r_of(w, d, rho, alpha, dim):
    """R = E^-1/2 W."""
    beta = rho * (1.0 + alpha) + alpha / dim * d.sum()
    return np.float64(w) * np.sqrt(beta / d + 1.0)[:, None]


@pytest.mark.parametrize("shape", [(6, 17), (42, 300)])
@pytest.mark.parametrize("damage", ["none", "slight", "heavy", "dependent"])
@pytest.mark.parametrize("doubtful", [0.0, 1.0])
def test_rows_become_orthonormal_again_where_they_are_not(device, damage, doubtful, shape):
    rng = np.random.default_rng(1)
    (rank, dim), alpha, rho = shape, 4.0, 0.2
    r = np.linalg.qr(rng.normal(size=(dim, rank)))[0].T
    if damage == "slight":
        r += 4e-2 / np.sqrt(dim) * rng.normal(size=r.shape)
    elif damage == "heavy":
        r[3] += 0.9 * r[1]
    elif damage == "dependent":
        r[4], r[2] = r[1], r[0] + r[1]
    d = np.linspace(2.0, 0.1, rank)
    w = np.float32(r / (r_of(r, d, rho, alpha, dim) / r)[:, :1]).copy("C")
    there, numbers = to_device(w), np.array([rho, doubtful, 0.0])
    orthonormalize([there], [to_device(d)], [to_device(numbers)], [alpha])
    got = r_of(fetch(there), d, rho, alpha, dim)
    if damage == "none" or not doubtful:
        assert np.array_equal(fetch(there), w)
        return
    np.testing.assert_allclose(got @ got.T, np.eye(rank), atol=1e-5)
    np.testing.assert_allclose(got[0] @ r[0] / np.linalg.norm(r[0]), 1.0, atol=1e-5)
    if damage != "dependent":  # what is made of dependent rows differs
        orthonormalize([w], [d], [numbers], [alpha])
        np.testing.assert_allclose(got, r_of(w, d, rho, alpha, dim), atol=2e-5)


def test_only_doubtful_estimates_of_many_are_made_orthonormal(device):
    rng = np.random.default_rng(7)
    w = [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    d = [np.linspace(2.0, 0.1, rank) for rank, _ in SHAPES]
    numbers = [np.array([0.2, i % 2, 0.0]) for i in range(len(SHAPES))]
    there = [on_device(a) for a in w]
    states = [to_device(a) for a in d], [to_device(a) for a in numbers]
    orthonormalize(there, *states, [4.0] * len(w))
    for i, (got, one, shape) in enumerate(zip(there, w, SHAPES, strict=True)):
        if i % 2:
            r = r_of(fetch(got), d[i], 0.2, 4.0, shape[1])
            np.testing.assert_allclose(r @ r.T, np.eye(shape[0]), atol=1e-5)
        else:
            np.testing.assert_array_equal(fetch(got), one)


def test_a_run_of_minibatches_agrees_with_the_host_and_fetches_nothing(device):
    rng = np.random.default_rng(2)
    here, there = (OnlineNaturalGradient(4, 2, 500.0) for _ in range(2))
    for i in range(16):
        x = (rng.normal(size=(25, 12)) * np.linspace(2.0, 0.1, 12)).astype(np.float32)
        y = to_device(x)
        before = device.downloads
        scale = there.precondition(y)
        assert device.downloads == before
        assert isinstance(scale, Number)
        expected = here.precondition(x) * x
        np.testing.assert_allclose(float(scale) * fetch(y), expected, rtol=1e-3, atol=1e-4)
        if i in (3, 15):
            assert there.rho == pytest.approx(here.rho, rel=1e-4)
    np.testing.assert_allclose(fetch(there.d), here.d, rtol=1e-3)
    there.check_finite()


def test_all_zero_rows_keep_scale_one(device):
    preconditioner = OnlineNaturalGradient(rank=2)
    for _ in range(4):
        assert float(preconditioner.precondition(to_device(np.zeros((10, 6), np.float32)))) == 1.0


def test_divergence_is_reported_when_somebody_asks(device):
    preconditioner = OnlineNaturalGradient(rank=2)
    preconditioner.precondition(to_device(np.ones((8, 5), np.float32)))
    preconditioner.check_finite()
    preconditioner.precondition(to_device(np.full((8, 5), np.nan, np.float32)))
    assert tensor.to_host(preconditioner.numbers)[DIVERGED] > 0
    with pytest.raises(UserError, match="diverged"):
        preconditioner.check_finite()


@pytest.mark.usefixtures("unpoisoned")
def test_many_estimates_are_updated_by_one_kernel(device):
    ranks = (4, 7, 4, 4)
    made = [estimate(rank, rank + 5, seed=i) for i, rank in enumerate(ranks)]
    settings = [(0.2 + 0.1 * i, 3 * rank, 4.0, rank + 5) for i, rank in enumerate(ranks)]
    alone = [step_on_device(*one, *options) for one, options in zip(made, settings, strict=True)]
    device.launched.clear()
    d, numbers, products, traces = zip(*made, strict=True)
    outs = [[to_device(a) for a in d], [to_device(a) for a in numbers]]
    outs += [[to_device(np.zeros((r, c or r), np.float32)) for r in ranks] for c in (0, 1)]
    scalars = [Number(to_device(np.array([trace]))) for trace in traces]
    fisher_step(*outs, [to_device(p) for p in products], scalars, settings)
    assert device.launched == ["fisher_step_7_1"]
    for i, expected in enumerate(alone):
        for out, one in zip(outs, expected, strict=True):
            np.testing.assert_array_equal(fetch(out[i]), one)


def test_updates_that_are_put_off_come_before_the_estimate_is_needed_again(device):
    rng = np.random.default_rng(4)
    now, later = (OnlineNaturalGradient(3, 1, 500.0) for _ in range(2))
    for i in range(6):
        x = rng.normal(size=(20, 9)).astype(np.float32)
        a, b = to_device(x), to_device(x)
        first = now.precondition(a)
        with Recorder():
            second = later.precondition(b)
            if i % 3 == 0:
                apply_all_pending()
        np.testing.assert_array_equal(fetch(a), fetch(b))
        assert float(first) == float(second)
        if i % 3 == 0:
            assert later.rho == now.rho
    assert later.rho != now.rho  # the last one is still to come
    apply_all_pending()
    assert later.rho == now.rho


def test_what_is_left_of_rows_is_measured(device):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((30, 12)).astype(np.float32)
    for scale in (0.1, 0.29):
        w = scale * np.linalg.qr(rng.standard_normal((12, 4)))[0].T.astype(np.float32) / 0.29
        h = x @ w.T
        before = float((x.astype(float) ** 2).sum())
        expected = float(((x - h @ w).astype(float) ** 2).sum())
        parts = [x[:, :5], x[:, 5:]]
        there = residual_norm(*map(to_device, (h, w)), [to_device(p.copy()) for p in parts], before)
        assert residual_norm(h, w, parts, before) == pytest.approx(expected, rel=1e-4)
        assert there == pytest.approx(expected, rel=1e-4)
