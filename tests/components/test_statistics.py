"""Statistics, self-repair, test mode of batch norm, numbers that nnet3-info prints."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.nnet.components.activation_stats import NonlinearComponent
from nnet3tools.nnet.components.base import BackpropArgs, Component
from nnet3tools.nnet.components.batchnorm import BatchNormComponent
from nnet3tools.nnet.components.summary import parameter_stats, summarize_vector
from support.harness import forward, from_bytes, make, rows_of, to_bytes


@pytest.fixture(autouse=True)
def _seed() -> None:
    tensor.random.seed(1)


def nonlinearity(config: str) -> NonlinearComponent:
    component = make(config)
    assert isinstance(component, NonlinearComponent)
    return component


def test_statistics_are_sums_over_rows() -> None:
    component = nonlinearity("type=SigmoidComponent dim=3")
    y = np.random.default_rng(0).uniform(size=(6, 3)).astype(np.float32)
    component.sum_stats(y)
    component.sum_stats(y)
    assert component.count == 12
    np.testing.assert_allclose(component.value_sum, 2.0 * y.sum(0), 1e-5)
    np.testing.assert_allclose(component.deriv_sum, 2.0 * (y * (1 - y)).sum(0), 1e-5)


def test_statistics_are_taken_on_the_first_and_about_every_other_minibatch() -> None:
    component = nonlinearity("type=TanhComponent dim=2")
    y = np.zeros((1, 2), np.float32)
    for calls in range(1, 201):
        component.store_stats(y, y, None)
        assert component.count >= 1 or calls == 0
    assert 70 < component.count < 130
    for _ in range(200):
        component.store_backprop_stats(y)
    assert 120 < component.oderiv_count < 180


def test_softmax_statistics_are_taken_always_log_softmax_never() -> None:
    y = np.zeros((1, 2), np.float32)
    softmax = nonlinearity("type=SoftmaxComponent dim=2")
    log_softmax = nonlinearity("type=LogSoftmaxComponent dim=2")
    for component in (softmax, log_softmax):
        for _ in range(10):
            component.store_stats(y, y, None)
    assert (softmax.count, log_softmax.count) == (10, 0)
    assert softmax.deriv_sum is None


def test_models_add_and_scale_their_statistics() -> None:
    one = nonlinearity("type=RectifiedLinearComponent dim=2")
    other = one.copy()
    one.sum_stats(np.ones((4, 2), np.float32))
    one.num_dims_processed = 6.0
    other.add(0.5, one)
    other.scale(3.0)
    assert (other.count, other.num_dims_processed) == (6.0, 9.0)
    np.testing.assert_allclose(other.value_sum, [6.0, 6.0])


def _with_derivatives(config: str, mean_derivs: list[float]) -> NonlinearComponent:
    component = nonlinearity(config)
    component.count = 10.0
    component.value_sum = np.zeros(component.dim)
    component.deriv_sum = 10.0 * np.asarray(mean_derivs)
    return component


def _derivative_of_repair(
    component: NonlinearComponent, y: np.ndarray
) -> tuple[np.ndarray, Component]:
    """Self-repair's derivative in the first minibatch in which it is active, and the model."""
    dy = np.zeros_like(y)
    for seed in range(20):
        tensor.random.seed(seed)
        updated, dx = component.copy(), np.full_like(y, np.nan)
        component.backprop(BackpropArgs("c", None, None, y, dy, None, updated, dx))
        if dx.any():
            return dx, updated
    return dx, updated


def test_relu_self_repair_lifts_dead_units_and_lowers_those_always_on() -> None:
    config = "type=RectifiedLinearComponent dim=3 self-repair-scale=0.01"
    component = _with_derivatives(config, [0.01, 0.5, 0.99])
    dx, updated = _derivative_of_repair(component, np.zeros((4, 3), np.float32))
    np.testing.assert_allclose(dx, np.tile([0.02, 0.0, -0.02], (4, 1)), 1e-5)
    assert isinstance(updated, NonlinearComponent)
    assert (updated.num_dims_self_repaired, updated.num_dims_processed) == (2, 3)


def test_relu_self_repair_averages_over_blocks() -> None:
    config = "type=RectifiedLinearComponent dim=4 block-dim=2 self-repair-scale=0.01"
    component = _with_derivatives(config, [0.0, 0.5, 0.08, 0.5])
    dx, _ = _derivative_of_repair(component, np.zeros((2, 4), np.float32))
    np.testing.assert_allclose(dx, np.tile([0.02, 0.0, 0.02, 0.0], (2, 1)), 1e-5)


def test_sigmoid_self_repair_draws_saturated_units_to_the_middle() -> None:
    component = _with_derivatives("type=SigmoidComponent dim=2 self-repair-scale=0.01", [0.01, 0.2])
    y = np.array([[0.9, 0.9], [0.2, 0.2]], np.float32)
    dx, updated = _derivative_of_repair(component, y)
    np.testing.assert_allclose(dx, [[-0.016, 0.0], [0.012, 0.0]], 1e-4, 1e-7)
    assert isinstance(updated, NonlinearComponent)
    assert (updated.num_dims_self_repaired, updated.num_dims_processed) == (1, 2)


def test_tanh_self_repair_uses_its_own_threshold() -> None:
    config = "type=TanhComponent dim=2 self-repair-scale=0.01 self-repair-lower-threshold=0.3"
    component = _with_derivatives(config, [0.25, 0.35])
    dx, _ = _derivative_of_repair(component, np.array([[0.5, 0.5]], np.float32))
    np.testing.assert_allclose(dx, [[-0.01, 0.0]], 1e-5)


def test_no_self_repair_without_statistics_or_scale() -> None:
    y = np.zeros((2, 3), np.float32)
    dx, _ = _derivative_of_repair(
        nonlinearity("type=RectifiedLinearComponent dim=3 self-repair-scale=0.01"), y
    )
    assert not dx.any()
    dx, _ = _derivative_of_repair(
        _with_derivatives("type=RectifiedLinearComponent dim=3", [0.0] * 3), y
    )
    assert not dx.any()


def test_statistics_of_another_size_are_kept_but_replaced_when_new_ones_come() -> None:
    text = (
        "<RectifiedLinearComponent> <Dim> 4 <BlockDim> 2 <ValueAvg>  [ 1 2 ]\n<DerivAvg>  [ 1 1 ]\n"
        "<Count> 10 <OderivRms>  [ 1 1 ]\n<OderivCount> 5 <NumDimsSelfRepaired> 0 "
        "<NumDimsProcessed> 0 </RectifiedLinearComponent> "
    )
    component = from_bytes(text.encode(), False)
    assert isinstance(component, NonlinearComponent)
    assert to_bytes(component, False) == text.encode()
    assert "value-avg" not in component.info()
    component.sum_stats(np.ones((3, 4), np.float32))
    assert component.count == 3


# -- batch norm


def _trained_batch_norm(config: str) -> tuple[BatchNormComponent, np.ndarray]:
    component = make(config)
    assert isinstance(component, BatchNormComponent)
    x = np.random.default_rng(0).normal(2.0, 3.0, size=(50, component.dim)).astype(np.float32)
    for half in (x[:20], x[20:]):
        y, memo = forward(component, half, rows_of(component, len(half)))
        component.store_stats(half, y, memo)
    return component, x


@pytest.mark.parametrize("block_dim", [4, 2])
def test_batch_norm_test_mode_normalizes_by_what_it_saw(block_dim: int) -> None:
    config = f"type=BatchNormComponent dim=4 block-dim={block_dim} target-rms=0.5"
    component, x = _trained_batch_norm(config)
    component.set_test_mode(True)
    y, memo = forward(component, x, rows_of(component, 50))
    blocks = x.astype(np.float64).reshape(-1, block_dim)
    scale = 0.5 / np.sqrt(blocks.var(axis=0) + 1e-3)
    expected = ((blocks - blocks.mean(axis=0)) * scale).reshape(50, 4)
    np.testing.assert_allclose(y, expected, 1e-3, 1e-4)
    assert memo is None
    component.zero_stats()
    assert component.count > 0, "in test mode the statistics are the transform"
    again = from_bytes(to_bytes(component, True), True)
    np.testing.assert_allclose(forward(again, x, rows_of(again, 50))[0], y, 1e-4, 1e-5)


def test_batch_norm_test_mode_rounds_as_kaldi_does() -> None:
    """Float32 arithmetic in another order differs visibly if mean^2 is 10,000 variances."""
    component = make("type=BatchNormComponent dim=200 target-rms=0.7")
    assert isinstance(component, BatchNormComponent)
    rng, f = np.random.default_rng(0), np.float32
    component.count = 30001.0
    mean = 1.0 + 0.1 * rng.normal(size=200)
    component.stats_sum = mean * component.count
    component.stats_sumsq = (1e-4 + mean**2) * component.count
    component.set_test_mode(True)
    inverse = f(1.0 / component.count)
    rounded = component.stats_sum.astype(f) * inverse
    variance = component.stats_sumsq.astype(f) * inverse - rounded * rounded
    scale = f(1) / np.sqrt(np.maximum(variance, f(0)) + f(component.epsilon)) * f(0.7)
    np.testing.assert_allclose(component.test_scale, scale, rtol=3e-7)
    np.testing.assert_allclose(component.test_offset, -rounded * scale, rtol=5e-7)
    exact = 0.7 / np.sqrt(1e-4 + component.epsilon)
    assert np.abs(scale / exact - 1.0).max() > 1e-5


def test_batch_norm_backprop_in_test_mode_is_a_scaling() -> None:
    component, x = _trained_batch_norm("type=BatchNormComponent dim=4")
    component.set_test_mode(True)
    dx = np.full_like(x, np.nan)
    component.backprop(BackpropArgs("c", None, None, x, np.ones_like(x), None, None, dx))
    np.testing.assert_allclose(dx, np.broadcast_to(component.test_scale, x.shape))


def test_batch_norm_statistics_add_scale_and_are_forgotten() -> None:
    component, _ = _trained_batch_norm("type=BatchNormComponent dim=4")
    other = component.copy()
    other.add(1.0, component)
    other.scale(0.5)
    assert other.info() == component.info()
    other.zero_stats()
    assert other.count == 0
    assert "data-mean" not in other.info()


def test_batch_norm_test_mode_without_data_makes_something_up() -> None:
    component = make("type=BatchNormComponent dim=4 test-mode=true")
    y, _ = forward(component, np.ones((3, 4), np.float32), rows_of(component, 3))
    assert np.isfinite(y).all()


# -- nnet3-info


def test_short_vectors_are_shown_whole_in_few_digits() -> None:
    values = np.array([12345.6, -123.4, 9.96, 0.995, 0.0123, 0.00123, 0.0, 3e-7], np.float32)
    assert summarize_vector(values) == "[ 12345.6 -123 10.0 1.0 0.01 0.001 0 3e-07 ]"


def test_long_vectors_are_shown_as_percentiles() -> None:
    assert summarize_vector(np.arange(101, dtype=np.float32)[::-1]) == (
        "[percentiles(0,1,2,5 10,20,50,80,90 95,98,99,100)="
        "(0,1.0,2.0,5.0 10,20,50,80,90 95,98,99,100), mean=50, stddev=29.2]"
    )


def test_parameters_are_shown_with_norms_of_rows_and_columns() -> None:
    matrix = np.array([[3.0, 4.0]], np.float32)
    assert parameter_stats("w", matrix, include_norms=True) == (
        "w-rms=3.536, w-row-norms=[ 5.0 ], w-col-norms=[ 3.0 4.0 ]"
    )
    assert parameter_stats("b", matrix[0], include_mean=True) == "b-{mean,stddev}=3.5,0.5"
