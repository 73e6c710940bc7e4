"""Feed-forward components: derivatives of every type, plain formulas, config errors, old files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import ConfigError, DataError
from nnet3tools.io.stream import Writer
from nnet3tools.nnet.components.affine import AffineComponent
from nnet3tools.nnet.components.base import Properties
from nnet3tools.nnet.components.scale_offset import ScaleAndOffsetComponent
from nnet3tools.nnet.components.updatable import UpdatableComponent
from support.harness import (
    backward,
    check_component,
    check_output,
    forward,
    from_bytes,
    make,
    rows_of,
    to_bytes,
)

CONFIGS = [
    "type=AffineComponent input-dim=5 output-dim=4",
    "type=AffineComponent input-dim=1 output-dim=3 orthonormal-constraint=1 max-change=0.75",
    "type=NaturalGradientAffineComponent input-dim=5 output-dim=4 bias-mean=1 l2-regularize=0.01",
    "type=NaturalGradientAffineComponent input-dim=9 output-dim=1 rank-in=4 learning-rate-factor=2",
    "type=LinearComponent input-dim=5 output-dim=7 orthonormal-constraint=-1.0",
    "type=LinearComponent input-dim=6 output-dim=2 use-natural-gradient=false rank-out=1",
    "type=FixedAffineComponent input-dim=5 output-dim=4",
    "type=FixedScaleComponent dim=5",
    "type=FixedScaleComponent dim=5 scale=0.25",
    "type=FixedBiasComponent dim=5",
    "type=PerElementScaleComponent dim=5 param-stddev=1",
    "type=NaturalGradientPerElementScaleComponent dim=9 param-stddev=1 rank=2",
    "type=PerElementOffsetComponent dim=5 param-stddev=1",
    "type=PerElementOffsetComponent dim=6 block-dim=3 param-mean=2 use-natural-gradient=false",
    "type=ScaleAndOffsetComponent dim=5 rank=2",
    "type=ScaleAndOffsetComponent dim=12 block-dim=4 rank=3",
    "type=RectifiedLinearComponent dim=12 self-repair-scale=1e-5",
    "type=RectifiedLinearComponent dim=6 block-dim=2 self-repair-lower-threshold=0.1",
    "type=SigmoidComponent dim=6 self-repair-scale=1e-5",
    "type=TanhComponent dim=12",
    "type=SoftmaxComponent dim=6",
    "type=LogSoftmaxComponent dim=6",
    "type=NormalizeComponent dim=6 target-rms=0.5",
    "type=NormalizeComponent input-dim=6 add-log-stddev=true",
    "type=NormalizeComponent dim=6 block-dim=3 add-log-stddev=true target-rms=2",
    "type=BatchNormComponent dim=12",
    "type=BatchNormComponent dim=6 block-dim=3 target-rms=0.5 epsilon=0.1",
    "type=PnormComponent input-dim=12 output-dim=4",
    "type=SumGroupComponent sizes=1,4,2",
    "type=SumGroupComponent input-dim=12 output-dim=4",
    "type=DropoutComponent dim=5 dropout-proportion=0.4",
    "type=DropoutComponent dim=5 dropout-proportion=0.4 dropout-per-frame=true",
    "type=DropoutComponent dim=5 dropout-proportion=0.4 test-mode=true",
    "type=DropoutComponent dim=5 dropout-proportion=0",
    "type=NoOpComponent dim=5",
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    tensor.random.seed(1)


@pytest.mark.parametrize("config", CONFIGS)
def test_everything_that_the_flags_promise(config: str) -> None:
    component = make(config)
    if isinstance(component, AffineComponent | ScaleAndOffsetComponent):
        # not only the values of a new component
        noise = np.random.default_rng(0).normal(size=component.num_parameters)
        component.unvectorize(0.5 + noise.astype(np.float32))
    check_component(component)


# -- plain formulas


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def _softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


def _batch_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-3)


def _block_normalize(x: np.ndarray) -> np.ndarray:
    parts = []
    for part in (x[:, :3], x[:, 3:]):
        rms = np.sqrt((part**2).mean(axis=1, keepdims=True))
        parts += [2.0 * part / rms, np.log(rms)]
    return np.hstack(parts)


FORMULAS: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
    ("type=RectifiedLinearComponent dim=6", lambda x: np.where(x > 0, x, 0.0)),
    ("type=SigmoidComponent dim=6", _sigmoid),
    ("type=TanhComponent dim=6", np.tanh),
    ("type=SoftmaxComponent dim=6", _softmax),
    ("type=LogSoftmaxComponent dim=6", lambda x: np.log(_softmax(x))),
    ("type=BatchNormComponent dim=6", _batch_norm),
    (
        "type=NormalizeComponent dim=6 block-dim=3 target-rms=2 add-log-stddev=true",
        _block_normalize,
    ),
    (
        "type=PnormComponent input-dim=6 output-dim=2",
        lambda x: np.linalg.norm(x.reshape(len(x), 2, 3), axis=2),
    ),
    (
        "type=SumGroupComponent sizes=1,3,2",
        lambda x: np.stack([x[:, 0], x[:, 1:4].sum(1), x[:, 4:].sum(1)], axis=1),
    ),
    ("type=DropoutComponent dim=5 dropout-proportion=0.4 test-mode=true", lambda x: 0.6 * x),
    ("type=NoOpComponent dim=5", lambda x: x),
    ("type=FixedScaleComponent dim=3 scale=0.5", lambda x: 0.5 * x),
    ("type=PerElementScaleComponent dim=3 param-mean=3", lambda x: 3.0 * x),
    ("type=PerElementOffsetComponent dim=4 block-dim=2 param-mean=3", lambda x: x + 3.0),
]


@pytest.mark.parametrize(("config", "formula"), FORMULAS)
def test_output_is_that_of_the_plain_formula(
    config: str, formula: Callable[[np.ndarray], np.ndarray]
) -> None:
    check_output(make(config), formula)


@pytest.mark.parametrize(
    "config",
    [
        "type=AffineComponent input-dim=5 output-dim=4",
        "type=NaturalGradientAffineComponent input-dim=5 output-dim=4",
        "type=LinearComponent input-dim=5 output-dim=4",
    ],
)
def test_affine_output_is_the_matrix_product(config: str) -> None:
    component = make(config)
    assert isinstance(component, UpdatableComponent)
    values = component.vectorize().astype(np.float64)
    matrix, bias = values[:20].reshape(4, 5), values[20:] if len(values) > 20 else 0.0
    check_output(component, lambda x: x @ matrix.T + bias)


def test_scales_near_zero_are_kept_away_from_it() -> None:
    scales = np.array([0.0, -1e-6, 2.0], np.float32)
    component = ScaleAndOffsetComponent(dim=3, scales=scales, offsets=np.zeros(3, np.float32))
    check_output(component, lambda x: x * [1e-4, -1e-4, 2.0])


def test_softmax_output_is_never_zero() -> None:
    x = np.array([[0.0, -1000.0]], np.float32)
    y, _ = forward(make("type=SoftmaxComponent dim=2"), x, rows_of(make(CONFIGS[0]), 1))
    np.testing.assert_allclose(y, [[1.0, 1e-20]])


def test_noop_scales_derivatives_only() -> None:
    component = make("type=NoOpComponent dim=3 backprop-scale=0.5")
    x, dy = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    rows = rows_of(component, 4)
    y, memo = forward(component, x, rows)
    assert np.array_equal(y, x)
    np.testing.assert_allclose(backward(component, x, y, memo, dy, rows, None), 0.5 * dy)
    assert from_bytes(to_bytes(component, True), True).info().endswith("backprop-scale=0.5")


def test_dropout_keeps_the_given_proportion_and_whole_rows() -> None:
    x = np.ones((2000, 3), np.float32)
    rows = rows_of(make(CONFIGS[0]), 2000)
    y, _ = forward(make("type=DropoutComponent dim=3 dropout-proportion=0.3"), x, rows)
    assert y.mean() == pytest.approx(0.7, abs=0.03)
    config = "type=DropoutComponent dim=3 dropout-proportion=0.3 dropout-per-frame=true"
    y, _ = forward(make(config), x, rows)
    assert y[:, 0].mean() == pytest.approx(0.7, abs=0.05)
    assert np.array_equal(y[:, 0], y[:, 2])


def test_components_with_natural_gradient_tell_of_it() -> None:
    assert len(make(CONFIGS[2]).preconditioners()) == 2
    assert make(CONFIGS[0]).preconditioners() == []


def test_natural_gradient_is_frozen_and_kept_by_copies() -> None:
    component = make(CONFIGS[2])
    assert isinstance(component, UpdatableComponent)
    component.freeze_natural_gradient(True)
    assert all(p.frozen for p, _ in component.copy().preconditioners())


# -- Kaldi's property bits


@pytest.mark.parametrize(
    ("config", "bits"),
    [
        ("type=AffineComponent input-dim=2 output-dim=2", 0x63),
        ("type=LinearComponent input-dim=2 output-dim=2", 0x6B),
        ("type=FixedAffineComponent input-dim=2 output-dim=2", 0x21),
        ("type=FixedScaleComponent dim=2", 0x105),
        ("type=PerElementScaleComponent dim=2", 0x147),
        ("type=PerElementOffsetComponent dim=2", 0x107),
        ("type=PerElementOffsetComponent dim=4 block-dim=2", 0x907),
        ("type=ScaleAndOffsetComponent dim=4 block-dim=2", 0xD87),
        ("type=RectifiedLinearComponent dim=4", 0x285),
        ("type=RectifiedLinearComponent dim=4 block-dim=2", 0x685),
        ("type=SigmoidComponent dim=4", 0x285),
        ("type=SoftmaxComponent dim=4", 0x385),
        ("type=LogSoftmaxComponent dim=4", 0x281),
        ("type=NormalizeComponent dim=4", 0x165),
        ("type=NormalizeComponent dim=4 add-log-stddev=true", 0x61),
        ("type=BatchNormComponent dim=4", 0x1385),
        ("type=BatchNormComponent dim=4 block-dim=2", 0x1F85),
        ("type=PnormComponent input-dim=4 output-dim=2", 0xC1),
        ("type=SumGroupComponent sizes=2,2", 0x01),
        ("type=DropoutComponent dim=4 dropout-proportion=0", 0x21C1),
        ("type=NoOpComponent dim=4", 0x105),
    ],
)
def test_property_bits_are_kaldis(config: str, bits: int) -> None:
    assert make(config).properties == Properties(bits)


# -- config lines


def test_parameters_come_from_files(tmp_path: Path) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    with (tmp_path / "m").open("wb") as file:
        Writer(file, False).write_matrix(matrix)
    with (tmp_path / "v").open("wb") as file:
        Writer(file, False).write_vector(matrix[0])
    m, v = tmp_path / "m", tmp_path / "v"
    for type_name in ("AffineComponent", "NaturalGradientAffineComponent", "FixedAffineComponent"):
        component = make(f"type={type_name} matrix={m}")
        assert (component.input_dim, component.output_dim) == (2, 2)
        check_output(component, lambda x: x @ matrix[:, :2].T + matrix[:, 2])
    check_output(make(f"type=LinearComponent matrix={m}"), lambda x: x @ matrix.T)
    scales = ("FixedScaleComponent scales", "NaturalGradientPerElementScaleComponent scales")
    for words in (*scales, "PerElementScaleComponent vector"):
        check_output(make(f"type={words}={v}"), lambda x: x * matrix[0])
    for words in ("FixedBiasComponent bias", "PerElementOffsetComponent vector"):
        check_output(make(f"type={words}={v}"), lambda x: x + matrix[0])
    with pytest.raises(ConfigError, match="input-dim differs"):
        make(f"type=LinearComponent matrix={m} input-dim=7")
    with pytest.raises(DataError, match="nowhere"):
        make(f"type=LinearComponent matrix={tmp_path}/nowhere")


# -- older field names in files


OLD_FILES = [
    "<AffineComponent> <LearningRate> 0.1 <LinearParams>  [\n  1 2 ]\n<BiasParams>  [ 3 ]\n"
    "<IsGradient> T </AffineComponent> ",
    "<NaturalGradientAffineComponent> <LearningRateFactor> 2 <MaxChange> 0.5 <LearningRate> 0.1 "
    "<LinearParams>  [\n  1 2 ]\n<BiasParams>  [ 3 ]\n<RankIn> 2 <RankOut> 1 <UpdatePeriod> 4 "
    "<NumSamplesHistory> 2000 <Alpha> 4 <MaxChangePerSample> 0.1 <IsGradient> F <UpdateCount> 1 "
    "<ActiveScalingCount> 2 <MaxChangeScaleStats> 3 <NaturalGradientAffineComponent> ",
    "<NaturalGradientPerElementScaleComponent> <LearningRate> 0.1 <Params>  [ 1 2 ]\n"
    "<IsGradient> F <Rank> 1 <UpdatePeriod> 10 <NumSamplesHistory> 2000 <Alpha> 4 "
    "<MaxChangePerMinibatch> 5 </NaturalGradientPerElementScaleComponent> ",
    "<PerElementOffsetComponent> <LearningRate> 0.1 <Offsets>  [ 1 2 ]\n"
    "</PerElementOffsetComponent> ",
    "<NoOpComponent> <Dim> 2 <ValueAvg>  [ ]\n<DerivAvg>  [ ]\n<Count> 0 <OderivRms>  [ ]\n"
    "<OderivCount> 0 <NumDimsSelfRepaired> 0 <NumDimsProcessed> 0 </NoOpComponent> ",
    "<NormalizeComponent> <Dim> 2 <TargetRms> 0.5 <ValueAvg>  [ ]\n<DerivAvg>  [ ]\n<Count> 0 "
    "</NormalizeComponent> ",
    "<DropoutComponent> <Dim> 2 <DropoutProportion> 0.5 </DropoutComponent> ",
    "<SigmoidComponent> <Dim> 2 <ValueAvg>  [ ]\n<DerivAvg>  [ ]\n<Count> 0 "
    "<NumDimsSelfRepaired> 0 <NumDimsProcessed> 0 </SigmoidComponent> ",
    "<SumGroupComponent> <Sizes> [ 1 2 ]\n<SumGroupComponent> ",
]


@pytest.mark.parametrize("text", OLD_FILES)
def test_older_files_are_read(text: str) -> None:
    component = from_bytes(text.encode(), False)
    again = to_bytes(component, False)
    assert to_bytes(from_bytes(again, False), False) == again


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "<AffineComponent> <LearningRate> 1 <LinearParams>  [\n 1 2 ]\n<BiasParams>  [ 3 4 ]\n",
            "2 ",
        ),
        ("<NoOpComponent> <Dim> 2 <Backprop> 1 ", "<BackpropScale>"),
        ("<PnormComponent> <InputDim> 5 <OutputDim> 2 ", "found 2 and 5"),
        ("<SumGroupComponent> <Sizes> [ 1 -2 ]\n", "positive"),
        ("<SumGroupComponent> <Sizes> [ 2000000000 2000000000 ]\n", "less than"),
        (
            "<BatchNormComponent> <Dim> 4 <BlockDim> 3 <Epsilon> 1 <TargetRms> 1 <TestMode> F "
            "<Count> 0 <StatsMean> [ ]\n<StatsVar> [ ]\n",
            "block-dim must .* divide dim, found 3",
        ),
        ("<DropoutComponent> <Dim> 2 <DropoutProportion> 2 ", "Proportion"),
        ("<SigmoidComponent> <Dim> 2 <ValueAvg> [ ", "stream|byte"),
    ],
)
def test_garbled_file_is_a_data_error(text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_bytes(text.encode(), False)
