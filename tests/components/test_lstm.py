"""LSTM and GRU nonlinearities: comparison with the cell equations, self-repair, statistics."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.nnet.components.base import BackpropArgs
from support.harness import (
    backward,
    check_component,
    check_output,
    forward,
    gradient_holder,
    make,
    rows_of,
)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def cell(params: np.ndarray, x: np.ndarray) -> np.ndarray:
    dim = params.shape[1]
    x_i, x_f, x_c, x_o, previous = (x[:, k * dim : (k + 1) * dim] for k in range(5))
    scales = x[:, 5 * dim :] if x.shape[1] > 5 * dim else np.ones((len(x), 3))
    i_scale, f_scale, o_scale = scales.T[:, :, None]
    i, f = sigmoid(x_i + params[0] * previous), sigmoid(x_f + params[1] * previous)
    c = f * f_scale * previous + i * i_scale * np.tanh(x_c)
    return np.hstack([c, sigmoid(x_o + params[2] * c) * o_scale * np.tanh(c)])


@pytest.mark.parametrize("dropout", ["false", "true"])
@pytest.mark.parametrize("dim", [1, 5])
def test_cell_equations_derivatives_and_files(dim: int, dropout: str) -> None:
    component = make(
        f"type=LstmNonlinearityComponent cell-dim={dim} use-dropout={dropout} self-repair-scale=0"
    )
    check_output(component, lambda x: cell(component.params.astype(np.float64), x))
    if dropout == "false":
        check_component(component)


def test_derivative_by_the_dropout_scales_is_zero_and_the_rest_is_exact() -> None:
    component = make(
        "type=LstmNonlinearityComponent cell-dim=3 use-dropout=true self-repair-scale=0"
    )
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(4, 18)), rng.normal(size=(4, 6))
    component.params = component.params.astype(np.float64)
    dx = backward(component, x, forward(component, x, rows_of(component, 4))[0], None, dy,
                  rows_of(component, 4), gradient_holder(component))  # fmt: skip
    assert np.array_equal(dx[:, 15:], np.zeros((4, 3)))
    for at in [(0, 0), (1, 4), (2, 8), (3, 10), (0, 13)]:
        step = np.zeros_like(x)
        step[at] = 1e-6
        numeric = ((cell(component.params, x + step) - cell(component.params, x - step)) * dy).sum()
        assert abs(numeric / 2e-6 - dx[at]) < 1e-6


def test_many_blocks_of_rows_give_what_one_gives() -> None:
    component = make("type=LstmNonlinearityComponent cell-dim=4000")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 20000)).astype(np.float32)
    dy = rng.normal(size=(20, 8000)).astype(np.float32)
    whole, parts = gradient_holder(component), gradient_holder(component)
    dx = np.empty_like(x)
    component.backprop(BackpropArgs("", None, x, None, dy, None, whole, dx))
    for row in range(20):
        one = slice(row, row + 1)
        dx_row = np.empty_like(x[one])
        component.backprop(BackpropArgs("", None, x[one], None, dy[one], None, parts, dx_row))
        assert np.array_equal(dx_row, dx[one])
    np.testing.assert_allclose(whole.params, parts.params, 1e-4, 1e-4)
    # the sums of up to 16 rows are float32 numbers
    np.testing.assert_allclose(whole.value_sum, parts.value_sum, 1e-5, 1e-5)
    np.testing.assert_allclose(whole.deriv_sum, parts.deriv_sum, 1e-5, 1e-5)
    assert whole.count == parts.count == 20


def test_self_repair_pulls_saturated_units_back_and_counts_them() -> None:
    component = make("type=LstmNonlinearityComponent cell-dim=2 self-repair-scale=0.1")
    component.count = 99.0
    component.deriv_sum[:] = 100.0 * np.array([[0.04, 0.06]] * 5)
    rng = np.random.default_rng(2)
    x, dy = rng.normal(size=(3, 10)).astype(np.float32), np.zeros((3, 4), np.float32)
    to_update = component.copy()
    to_update.set_as_gradient()
    dx = np.empty_like(x)
    component.backprop(BackpropArgs("", None, x, None, dy, None, to_update, dx))
    # Thresholds: 0.05 for sigmoids, below which the first unit of each is; 0.2 for tanh, both are.
    assert np.array_equal(to_update.self_repair_total, [3, 3, 6, 3, 6])
    assert to_update.count == 102.0
    assert abs(dx[:, 1]).max() > 0.0  # through m_t's tanh, c_t depends on i_t of unit 1
    np.testing.assert_allclose(dx[:, 5], _c_part_pull(component.params, x, 1), 1e-4, 1e-6)


def _c_part_pull(params: np.ndarray, x: np.ndarray, unit: int) -> np.ndarray:
    """What self-repair alone adds to the derivative at tanh's argument x_c (gate o unrepaired)."""
    i = sigmoid(x[:, unit] + params[0, unit] * x[:, 8 + unit])
    c = cell(params, x)[:, unit]
    g = np.tanh(x[:, 4 + unit])
    return -0.1 * np.tanh(c) * i * (1 - g * g) - 0.1 * g


def test_natural_gradient_is_frozen_on_request() -> None:
    component = make("type=LstmNonlinearityComponent cell-dim=4")
    component.freeze_natural_gradient(True)
    assert component.preconditioner.frozen


def test_forward_of_no_rows_does_nothing() -> None:
    component = make("type=LstmNonlinearityComponent cell-dim=4")
    out = np.empty((0, 8), np.float32)
    tensor.lstm_nonlinearity(out, np.empty((0, 20), np.float32), component.params)


def gru(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    dim, recurrent = w.shape
    z, r, x_h = x[:, :dim], x[:, dim : dim + recurrent], x[:, dim + recurrent :][:, :dim]
    c, s = x[:, 2 * dim + recurrent :][:, :dim], x[:, x.shape[1] - recurrent :]
    h = np.tanh(x_h + (r * s) @ w.T)
    return np.hstack([h, (1 - z) * h + z * c])


def output_gru(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    z, x_h, c = np.split(x, 3, axis=1)
    h = np.tanh(x_h + w * c)
    return np.hstack([h, (1 - z) * h + z * c])


CONFIGS = {
    "type=GruNonlinearityComponent cell-dim=5": gru,
    "type=GruNonlinearityComponent cell-dim=6 recurrent-dim=2": gru,
    "type=OutputGruNonlinearityComponent cell-dim=4 param-mean=0.5": output_gru,
    "type=OutputGruNonlinearityComponent cell-dim=1": output_gru,
}


@pytest.mark.parametrize("config", CONFIGS)
def test_gru_equations_derivatives_and_files(config: str) -> None:
    component = make(f"{config} self-repair-scale=0")
    check_output(component, lambda x: CONFIGS[config](component.w_h.astype(np.float64), x))
    check_component(component)


@pytest.mark.parametrize("config", CONFIGS)
def test_statistics_are_kept_for_about_half_of_the_minibatches(config: str) -> None:
    component = make(f"{config} self-repair-scale=0.1 self-repair-threshold=1")
    holder = gradient_holder(component)
    rng = np.random.default_rng(0)
    tensor.random.seed(3)
    for _ in range(40):
        x = rng.normal(size=(5, component.input_dim)).astype(np.float32)
        y, _ = forward(component, x, rows_of(component, 5))
        dy = rng.normal(size=y.shape).astype(np.float32)
        tensor.random.seed(int(rng.integers(1 << 30)))
        component.backprop(BackpropArgs("", None, x, y, dy, None, holder, None))
    assert 5 * 10 <= holder.count <= 5 * 30
    # No tanh has an average derivative of 1, so all units were repaired each time.
    assert holder.self_repair_total == pytest.approx(holder.count / 5 * component.cell_dim)
    assert "self-repaired-proportion=0.2" in holder.info()


def test_self_repair_pulls_towards_zero() -> None:
    component = make("type=OutputGruNonlinearityComponent cell-dim=3 self-repair-scale=0.1")
    component.count, component.deriv_sum[:] = 1e6, 0.0
    x = np.random.default_rng(1).normal(size=(2, 9)).astype(np.float32)
    y, _ = forward(component, x, rows_of(component, 2))
    for seed in range(20):
        tensor.random.seed(seed)
        to_update, dx = component.copy(), np.zeros_like(x)
        to_update.set_as_gradient()
        component.backprop(BackpropArgs("", None, x, y, np.zeros_like(y), None, to_update, dx))
        repaired = to_update.count > component.count
        np.testing.assert_allclose(dx[:, 3:6], -0.2 * y[:, :3] * repaired, 1e-5, 1e-6)
        if repaired:
            return
    raise AssertionError("self-repair never ran")
