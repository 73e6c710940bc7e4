"""Integer weights: bounds, rounding, and the same outputs as the float network, nearly."""

import numpy as np
import pytest

from nnet3tools.errors import UserError
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.executor.utterance_computer import computer_one_by_one
from nnet3tools.nnet.components.quantized_matrix import QuantizedMatrix
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.finite import check_float
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.quantization import (
    components_to_quantize,
    dequantize,
    observe_inputs,
    quantize,
    splice_in_components,
)
from nnet3tools.tensor import random
from nnet3tools.tensor.operators.integer_affine import excess
from support.component_zoo import QUANTIZED, ZOO, model_of, quantized_model_of
from support.configs import in_a_row

NONE = np.empty(0, np.float32)

SPLICING = in_a_row("""input dim=4
a NaturalGradientAffineComponent input-dim=4 output-dim=20
relu RectifiedLinearComponent dim=20
b AffineComponent input-dim=60 output-dim=17 learning-rate-factor=2 \
input=Append(Offset(relu, 2), relu, Offset(relu, -1))
c LinearComponent input-dim=34 output-dim=9 input=Append(b, Offset(b, -3))""")


def outputs(nnet: Nnet, features: np.ndarray) -> np.ndarray:
    return computer_one_by_one(nnet, SimpleComputationOptions()).compute(features)


def features_of(dim: int) -> np.ndarray:
    return np.random.default_rng(dim).normal(size=(60, dim)).astype(np.float32)


def splicing_network() -> Nnet:
    random.seed(3)
    return Nnet.from_config(parse_config_lines(SPLICING, "splicing.config"))


@pytest.mark.parametrize("bits", [8, 16])
def test_no_matrix_leaves_the_bounds_or_the_rounding_error(bits):
    rng = np.random.default_rng(bits)
    matrices = [
        rng.normal(size=(40, 100)),
        np.ones((3, 70)),
        -np.ones((3, 70)),
        np.zeros((2, 5)),
        rng.normal(size=(5, 1)),
        rng.normal(size=(6, 33)) * np.array([[1e30, 1e-30, 1, 1e-45, 7, 0]]).T,
        np.where(rng.random((9, 64)) < 0.1, 10.0, 0.01),
    ]
    for matrix in (m.astype(np.float32) for m in matrices):
        made = QuantizedMatrix.of(matrix, bits, NONE)
        wide = made.values.astype(np.int64)
        assert excess(wide, made.values.dtype).max() <= 1.0
        error = np.abs(made.dense().astype(float) - matrix)
        assert (error <= 0.501 * made.scales[:, None]).all()


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize(("bits", "bound"), [(8, 0.03), (16, 1e-3), (32, 1e-5)])
def test_a_quantized_component_computes_nearly_what_its_weights_mean(kind, bits, bound):
    nnet = quantized_model_of(kind, bits)
    found, plain = outputs(nnet, features_of(ZOO[QUANTIZED[kind]][1])), nnet.copy()
    assert dequantize(plain) == ["c"]
    expected = outputs(plain, features_of(ZOO[QUANTIZED[kind]][1]))
    assert np.abs(found - expected).max() < bound * np.abs(expected).max()
    assert (found != expected).any() or bits == 32


@pytest.mark.parametrize("kind", QUANTIZED)
def test_converting_back_restores_everything_but_the_rounding(kind):
    float_nnet, nnet = model_of(QUANTIZED[kind]), quantized_model_of(kind, 16)
    original = float_nnet.components[0]
    assert nnet.components[0].type_name == kind
    assert nnet.updatable_components() == []
    dequantize(nnet)
    restored = nnet.components[0]
    assert type(restored) is type(original)
    for field in type(original).FIELDS:
        before, after = getattr(original, field.name), getattr(restored, field.name)
        if isinstance(before, np.ndarray) and before.ndim == 2:
            np.testing.assert_allclose(after, before, atol=2e-3 * np.abs(before).max())
        elif isinstance(before, (int, float, str, np.ndarray)):
            assert np.array_equal(before, after)


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("frames", [1, 3, 60])
def test_packed_floats_compute_the_same_for_every_number_of_rows(kind, frames):
    """The kernel for few rows and BLAS for one row and for many."""
    float_nnet, nnet = model_of(QUANTIZED[kind]), quantized_model_of(kind, 32)
    features = features_of(ZOO[QUANTIZED[kind]][1])[:frames]
    expected = outputs(float_nnet, features)
    np.testing.assert_allclose(outputs(nnet, features), expected, rtol=1e-5, atol=1e-5)
    dequantize(nnet)
    assert (outputs(nnet, features) == expected).all()


COMPOSITE = """
input-node name=input dim=6
component name=c type=CompositeComponent num-components=4 \\
 component1='type=NaturalGradientAffineComponent input-dim=6 output-dim=20' \\
 component2='type=RectifiedLinearComponent dim=20' \\
 component3='type=AffineComponent input-dim=20 output-dim=9' \\
 component4='type=LinearComponent input-dim=9 output-dim=5'
component-node name=c component=c input=input
output-node name=output input=c
""".replace("\\\n", "")


@pytest.mark.parametrize(("bits", "bound"), [(8, 0.05), (16, 1e-3), (32, 1e-5)])
def test_parts_of_a_composite_component_are_quantized(bits, bound):
    random.seed(4)
    nnet = Nnet.from_config(parse_config_lines(COMPOSITE, "composite.config"))
    exact = outputs(nnet.copy(), features_of(6))
    names = components_to_quantize(nnet, [], inputs=False)
    assert names == ["c.component3", "c.component4"]
    assert components_to_quantize(nnet, ["c.component4"], inputs=True) == [
        "c.component1", "c.component3",
    ]  # fmt: skip
    observed = nnet.copy()
    ranges = observe_inputs(observed, names)
    outputs(observed, features_of(6))
    assert ranges["c.component3"][0].min() == 0.0
    assert ranges["c.component3"][1].max() > 0.0
    quantize(nnet, names, bits, {})
    with pytest.raises(UserError, match=r"q.raw: the network is quantized \(component 'c'\)"):
        check_float(nnet, "q.raw")
    found = outputs(nnet.copy(), features_of(6))
    assert np.abs(found - exact).max() < bound * np.abs(exact).max()
    assert dequantize(nnet) == names
    kinds = [type(part).__name__ for part in nnet.components[0].components]
    assert kinds[2:] == ["AffineComponent", "LinearComponent"]


def test_readers_of_inputs_and_named_components_stay_float():
    nnet = splicing_network()
    assert components_to_quantize(nnet, [], inputs=False) == ["b", "c"]
    assert components_to_quantize(nnet, ["b*"], inputs=True) == ["a", "c"]


def test_splicing_inside_of_components_changes_no_output():
    nnet = splicing_network()
    expected = outputs(nnet.copy(), features_of(4))
    assert splice_in_components(nnet, ["b", "c"]) == ["b", "c"]
    assert [c.type_name for c in nnet.components[2:]] == ["TdnnComponent"] * 2
    assert nnet.components[2].learning_rate_factor == 2.0
    np.testing.assert_allclose(outputs(nnet, features_of(4)), expected, rtol=1e-4, atol=1e-4)


def test_a_component_of_two_nodes_or_of_two_sources_is_not_spliced():
    for change in ("input=Append(relu, Offset(relu, 1), a)", "input=Append(relu, relu, relu)"):
        text = SPLICING.replace("input=Append(Offset(relu, 2), relu, Offset(relu, -1))", change)
        nnet = Nnet.from_config(parse_config_lines(text, "other.config"))
        assert splice_in_components(nnet, ["b"]) == []


def test_observed_limits_are_those_of_the_inputs():
    nnet = splicing_network()
    found = observe_inputs(nnet, ["a"])
    x = features_of(4)
    computer = computer_one_by_one(nnet, SimpleComputationOptions(frames_per_chunk=8))
    for _ in range(3):
        computer.compute(x)  # a later run replays the recording
    x[11, 2] = -50.0
    computer.compute(x)
    low, high = found["a"]
    assert low[2] == -50.0
    assert (high == np.maximum(x.max(axis=0), 0)).all()


def test_limits_of_the_inputs_are_used():
    nnet = splicing_network()
    quantize(nnet, ["b"], 16, {"b": np.array([0.0, 0.5], np.float32)})
    assert nnet.components[2].weights.limits.tolist() == [0.0, 0.5]
    plain = nnet.copy()
    dequantize(plain)
    clipped = outputs(nnet, features_of(4)), outputs(plain, features_of(4))
    assert np.abs(clipped[0] - clipped[1]).max() > 0.1 * np.abs(clipped[1]).max()
