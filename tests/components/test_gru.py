"""GRU nonlinearities against the cell equations, and their statistics."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.nnet.components.base import BackpropArgs
from support.harness import check_component, check_output, forward, gradient_holder, make, rows_of


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
def test_cell_equations_derivatives_and_files(config: str) -> None:
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
