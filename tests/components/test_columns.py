"""Components over blocks of columns, constants and masks against plain formulas."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.nnet.components.base import BackpropArgs
from support.harness import (
    check_component,
    check_output,
    check_round_trip,
    forward,
    make,
    rows_of,
    to_bytes,
)


def blocks(x: np.ndarray, n: int) -> np.ndarray:
    return x.reshape(len(x), n, -1)


FORMULAS = {
    "ElementwiseProductComponent input-dim=6 output-dim=3": lambda x: blocks(x, 2).prod(axis=1),
    "ElementwiseProductComponent input-dim=8 output-dim=2": lambda x: blocks(x, 4).prod(axis=1),
    "SumBlockComponent input-dim=6 output-dim=2 scale=0.5": lambda x: 0.5
    * blocks(x, 3).sum(axis=1),
    "SumBlockComponent input-dim=4 output-dim=4": lambda x: x,
    "PermuteComponent column-map=2,0,1,4,3,5": lambda x: x[:, [2, 0, 1, 4, 3, 5]],
    "MaxpoolingComponent input-x-dim=4 input-y-dim=2 input-z-dim=3 pool-x-size=2 pool-y-size=1 "
    "pool-z-size=3 pool-x-step=2 pool-y-step=1 pool-z-step=1": lambda x: (
        x.reshape(-1, 2, 2, 2, 3).max(axis=(2, 4)).reshape(len(x), -1)
    ),
}


@pytest.mark.parametrize("config", FORMULAS)
def test_plain_formula_derivatives_and_files(config: str) -> None:
    component = make(f"type={config}")
    check_output(component, FORMULAS[config])
    check_component(component)


def test_overlapping_pools_pass_a_derivative_to_every_pool_of_a_maximum() -> None:
    component = make(
        "type=MaxpoolingComponent input-x-dim=3 input-y-dim=1 input-z-dim=1 pool-x-size=2 "
        "pool-y-size=1 pool-z-size=1 pool-x-step=1 pool-y-step=1 pool-z-step=1"
    )
    x = np.array([[1.0, 5.0, 2.0]], np.float32)
    y, _ = forward(component, x, rows_of(component, 1))
    assert np.array_equal(y, [[5.0, 5.0]])
    dx = np.zeros_like(x)
    component.backprop(
        BackpropArgs("", None, x, y, np.array([[1.0, 10.0]], np.float32), None, None, dx)
    )
    assert np.array_equal(dx, [[0.0, 11.0, 0.0]])


@pytest.mark.parametrize("order", ["zyx", "yzx"])
def test_convolution_of_images(order: str) -> None:
    component = make(
        "type=ConvolutionComponent input-x-dim=5 input-y-dim=4 input-z-dim=2 filt-x-dim=3 "
        f"filt-y-dim=2 filt-x-step=2 filt-y-step=1 num-filters=3 input-vectorization-order={order}"
    )
    filters = component.filter_params.reshape(3, 3, 2, 2).astype(np.float64)

    def formula(x: np.ndarray) -> np.ndarray:
        shape = (-1, 5, 4, 2) if order == "zyx" else (-1, 5, 2, 4)
        images = x.reshape(shape) if order == "zyx" else x.reshape(shape).swapaxes(2, 3)
        out = np.empty((len(x), 2, 3, 3))
        for i in range(2):
            for j in range(3):
                patch = images[:, 2 * i : 2 * i + 3, j : j + 2]
                out[:, i, j] = np.einsum("nxyz,fxyz->nf", patch, filters) + component.bias_params
        return out.reshape(len(x), -1)

    check_output(component, formula)
    check_component(component)


@pytest.mark.parametrize(("order", "number"), [("zyx", 1), ("yzx", 0)])
def test_order_of_an_image_as_files_number_it(order: str, number: int) -> None:
    component = make(
        "type=ConvolutionComponent input-x-dim=2 input-y-dim=2 input-z-dim=2 filt-x-dim=2 "
        f"filt-y-dim=2 filt-x-step=1 filt-y-step=1 num-filters=1 input-vectorization-order={order}"
    )
    assert f"<InputVectorization> {number} ".encode() in to_bytes(component, binary=False)


@pytest.mark.parametrize("type_name", ["Repeated", "NaturalGradientRepeated"])
def test_repeated_affine(type_name: str) -> None:
    component = make(
        f"type={type_name}AffineComponent input-dim=6 output-dim=9 num-repeats=3 bias-stddev=1"
    )
    w, b = component.linear_params, component.bias_params
    check_output(component, lambda x: (blocks(x, 3) @ w.T + b).reshape(len(x), -1))
    check_component(component)


def test_block_affine() -> None:
    component = make("type=BlockAffineComponent input-dim=6 output-dim=4 num-blocks=2")
    w, b = component.linear_params.reshape(2, 2, 3), component.bias_params
    check_output(component, lambda x: np.einsum("nbi,boi->nbo", blocks(x, 2), w).reshape(-1, 4) + b)
    check_component(component)


def test_constant_function_ignores_its_input_and_learns_its_output() -> None:
    for natural in ("true", "false"):
        component = make(
            "type=ConstantFunctionComponent input-dim=3 output-dim=4 output-stddev=1 "
            f"use-natural-gradient={natural}"
        )
        check_output(component, lambda x, c=component: np.tile(c.output, (len(x), 1)))
        check_component(component)


def test_constant_that_is_not_updatable_survives_scaling() -> None:
    component = make("type=ConstantComponent output-dim=3 output-mean=2 is-updatable=false")
    before = component.output.copy()
    component.scale(0.0)
    component.add(1.0, component.copy())
    assert np.array_equal(component.output, before)
    check_round_trip(component)


@pytest.mark.parametrize("type_name", ["ConstantComponent", "DropoutMaskComponent"])
def test_components_without_input_are_always_computable(type_name: str) -> None:
    component = make(f"type={type_name} output-dim=3")
    wanted = np.array([[0, 5, 0], [1, 7, 0]], np.int32)
    inputs, offsets = component.input_indexes(wanted)
    assert inputs.shape == (0, 3)
    assert np.array_equal(offsets, [0, 0, 0])
    computable, used = component.computable(wanted, inputs, offsets, np.zeros(0, bool))
    assert computable.all()
    assert len(used) == 0


def test_dropout_masks_have_their_distributions() -> None:
    rows = 4000
    out = np.empty((rows, 4), np.float32)
    make("type=DropoutMaskComponent output-dim=4 dropout-proportion=0.3").propagate(None, None, out)
    assert set(np.unique(out)) == {0.0, 1.0}
    assert abs(out.mean() - 0.7) < 0.03
    continuous = make(
        "type=DropoutMaskComponent output-dim=4 dropout-proportion=0.3 continuous=true"
    )
    continuous.propagate(None, None, out)
    assert 0.4 <= out.min() < out.max() <= 1.6
    assert abs(out.mean() - 1.0) < 0.03
    check_round_trip(continuous)
    continuous.test_mode = True
    continuous.propagate(None, None, out)
    assert (out == 1.0).all()


def test_masks_for_lstms_never_drop_both_first_gates() -> None:
    component = make("type=DropoutMaskComponent output-dim=3 dropout-proportion=0.4")
    out = np.empty((3000, 3), np.float32)
    tensor.random.seed(1)
    component.propagate(None, None, out)
    assert (out[:, :2].sum(axis=1) >= 1.0).all()
    assert np.abs(out.mean(axis=0) - 0.6).max() < 0.05
    component.test_mode = True
    component.propagate(None, None, out)
    assert np.allclose(out, 0.6)


def test_clipping_by_value_and_by_norm() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 4)).astype(np.float32)
    dy = 10 * rng.normal(size=(5, 4)).astype(np.float32)
    dx = np.empty_like(x)
    component = make("type=ClipGradientComponent dim=4 clipping-threshold=3")
    check_round_trip(component)
    check_output(component, lambda x: x)
    component.backprop(BackpropArgs("", None, x, None, dy, None, None, dx))
    assert np.array_equal(dx, np.clip(dy, -3, 3))
    component = make(
        "type=ClipGradientComponent dim=4 clipping-threshold=8 norm-based-clipping=true"
    )
    to_update = component.copy()
    component.backprop(BackpropArgs("", None, x, None, dy, None, to_update, dx))
    norms = np.linalg.norm(dy, axis=1)
    np.testing.assert_allclose(np.linalg.norm(dx, axis=1), np.minimum(norms, 8.0), 1e-5)
    assert (to_update.num_clipped, to_update.count) == ((norms > 8).sum(), 5)
    in_place = dy.copy()
    component.backprop(BackpropArgs("", None, x, None, in_place, None, None, in_place))
    np.testing.assert_allclose(in_place, dx, 1e-6)


def test_clip_gradient_self_repair_keeps_the_norm_and_pulls_towards_zero() -> None:
    component = make("type=ClipGradientComponent dim=3 norm-based-clipping=true")
    component.count, component.num_clipped = 100, 50
    rng = np.random.default_rng(1)
    x, dy = (rng.normal(size=(4, 3)).astype(np.float32) for _ in range(2))
    for seed in range(10):
        tensor.random.seed(seed)
        to_update, dx = component.copy(), np.empty_like(x)
        component.backprop(BackpropArgs("node", None, x, None, dy, None, to_update, dx))
        if to_update.num_self_repaired:
            norms = [np.linalg.norm(d, axis=1).mean() for d in (dx, dy)]
            assert norms[0] == pytest.approx(norms[1], rel=1e-4)
            assert (dx * x).sum() < (dy * x).sum()
            return
    raise AssertionError("self-repair never ran")


def test_composite_is_the_chain_of_its_components() -> None:
    parts = (
        "component1='type=AffineComponent input-dim=4 output-dim=6' "
        "component2='type=RectifiedLinearComponent dim=6' "
        "component3='type=NormalizeComponent dim=6' "
        "component4='type=NaturalGradientAffineComponent input-dim=6 output-dim=3'"
    )
    for rows in (0, 3):
        composite = make(
            f"type=CompositeComponent num-components=4 max-rows-process={rows} {parts}"
        )

        def formula(x: np.ndarray, c: object = composite) -> np.ndarray:
            for part in c.components:  # type: ignore[attr-defined]
                y = np.zeros((len(x), part.output_dim), np.float32)
                part.propagate(None, np.ascontiguousarray(x, np.float32), y)
                x = y
            return x

        check_output(composite, formula)
        check_component(composite)
        assert composite.num_parameters == 4 * 6 + 6 + 6 * 3 + 3


@pytest.mark.parametrize(
    "config",
    [
        "type=ConstantComponent output-dim=3",
        "type=ConstantFunctionComponent input-dim=2 output-dim=3",
        "type=NaturalGradientRepeatedAffineComponent input-dim=6 output-dim=9 num-repeats=3",
    ],
)
def test_natural_gradient_goes_on_in_the_first_step_of_backstitch(config: str) -> None:
    """As in Kaldi, only other components than these obey the request to freeze it."""
    component = make(config)
    component.freeze_natural_gradient(True)
    assert [g.frozen for g, _ in component.preconditioners()] == [False]
