"""Each kind of layer: output dimension and number of parameters by hand; its network computes."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.xconfig.configs import config_lines
from nnet3tools.xconfig.registry import layer_classes, make_layers

INPUT_DIM = 20


def affine(inputs: int, outputs: int) -> int:
    """The number of parameters of a matrix and a bias."""
    return inputs * outputs + outputs


def conv(filters_in: int, filters_out: int, offsets: int = 9) -> int:
    """The number of parameters of a convolution."""
    return affine(filters_in * offsets, filters_out)


CONV = "height-in=10 height-out=10 time-offsets=-1,0,1 height-offsets=-1,0,1 num-filters-out=3"
NO_CONV = "height-in=10 height-out=10 num-filters-out=2"
HEADS = "key-dim=3 value-dim=4 num-left-inputs=2 num-right-inputs=1 num-heads=2"
# keys, values, queries with four positions, of two heads
ATTENTION = affine(INPUT_DIM, 2 * (3 + 4 + 3 + 4))
DROPOUT = "dropout-proportion=0.2"
# a cell of 16, of which 4 recur and 4 do not
GATE, RESET, INPUTS, PROJECTION = affine(24, 16), affine(24, 4), affine(20, 16), affine(16, 8)
PGRU = 2 * GATE + RESET + PROJECTION
OPGRU = 2 * GATE + INPUTS + 16 + PROJECTION
FAST_PGRU = GATE + RESET + INPUTS + 16 * 4 + PROJECTION
LSTMP = 4 * GATE + 3 * 16 + PROJECTION

# layer, columns of its output, parameters
CASES = [
    *[
        (f"{kind} dim=12", 12, affine(20, 12))
        for kind in (
            "relu-layer",
            "relu-renorm-layer",
            "relu-batchnorm-dropout-layer",
            "relu-dropout-layer",
            "relu-batchnorm-layer",
            "batchnorm-layer",
            "sigmoid-layer",
            "tanh-layer",
            "affine-layer",
            "affine-component",
        )
    ],
    ("relu-layer", 20, affine(20, 20)),
    ("relu-layer dim=12 input=Append(-1,0,ReplaceIndex(ivector, t, 0))", 12, affine(50, 12)),
    ("relu-layer dim=12 bottleneck-dim=4", 12, 20 * 4 + affine(4, 12)),
    ("relu-renorm-layer dim=12 add-log-stddev=true", 12, affine(20, 11)),
    ("relu-batchnorm-so-layer dim=12", 12, affine(20, 12) + 2 * 12),
    ("batchnorm-so-relu-layer dim=12", 12, affine(20, 12) + 2 * 12),
    ("relu-dropout-layer dim=12 dropout-per-dim=true", 12, affine(20, 12)),
    ("relu-dropout-layer dim=12 dropout-per-dim-continuous=true", 12, affine(20, 12)),
    ("fixed-affine-layer dim=7 affine-transform-file=lda.mat", 7, 0),
    ("tdnnf-layer dim=20 bottleneck-dim=4", 20, 2 * 20 * 4 + affine(2 * 4, 20)),
    ("tdnnf-layer dim=20 bottleneck-dim=4 time-stride=0", 20, 20 * 4 + affine(4, 20)),
    ("tdnnf-layer dim=20 bottleneck-dim=4 context=left-only", 20, 2 * 20 * 4 + affine(4, 20)),
    (
        "tdnnf-layer dim=24 bottleneck-dim=4 bypass-scale=0.0 dropout-proportion=0.0",
        24,
        2 * 20 * 4 + affine(2 * 4, 24),
    ),
    ("prefinal-layer big-dim=16 small-dim=6", 6, affine(20, 16) + 16 * 6),
    *[
        (f"{kind} {CONV}", 30, conv(2, 3))
        for kind in (
            "conv-layer",
            "relu-conv-layer",
            "conv-relu-layer",
            "conv-renorm-layer",
            "relu-conv-renorm-layer",
            "batchnorm-conv-layer",
            "conv-relu-renorm-layer",
            "batchnorm-conv-relu-layer",
            "relu-batchnorm-conv-layer",
            "conv-relu-batchnorm-layer",
            "conv-relu-batchnorm-dropout-layer",
            "conv-relu-dropout-layer",
        )
    ],
    (f"conv-relu-batchnorm-so-layer {CONV}", 30, conv(2, 3) + 2 * 3),
    (
        "conv-layer height-in=10 height-out=5 height-subsample-out=2 time-offsets=0 "
        "height-offsets=-1,0,1 num-filters-out=4 required-time-offsets=0",
        20,
        conv(2, 4, 3),
    ),
    (f"relu-batchnorm-noconv-layer {NO_CONV}", 20, 0),
    (f"relu-noconv-layer {NO_CONV}", 20, 0),
    ("res-block height=10", 20, 2 * conv(2, 2)),
    *[(f"res-block height=10 bypass-source={s}", 20, 2 * conv(2, 2)) for s in ("input", "relu")],
    (
        "res-block height=10 num-bottleneck-filters=3 bypass-source=batchnorm",
        20,
        conv(2, 3, 1) + conv(3, 3) + conv(3, 2, 1),
    ),
    ("res2-block height=10 num-filters=2", 20, 2 * (conv(2, 2) + 2 * 2)),
    (
        "res2-block height-in=10 height-out=5 num-filters=3 time-period=2",
        15,
        conv(2, 3) + conv(3, 3) + 2 * 2 * 3 + conv(2, 3, 1),
    ),
    (
        "res2-block height=10 num-filters=3 num-bottleneck-filters=4",
        30,
        conv(2, 4, 1) + conv(4, 4) + conv(4, 3, 1) + 2 * (4 + 4 + 3) + conv(2, 3, 1),
    ),
    ("channel-average-layer dim=5", 5, 0),
    ("combine-feature-maps-layer height=5 num-filters1=3 num-filters2=1", 20, 0),
    (f"attention-renorm-layer {HEADS}", 2 * (4 + 4), ATTENTION),
    (f"attention-relu-renorm-layer {HEADS} time-stride=3", 2 * (4 + 4), ATTENTION),
    (f"attention-relu-batchnorm-layer {HEADS} output-context=false", 2 * 4, ATTENTION),
    (f"relu-renorm-attention-layer {HEADS}", 2 * (4 + 4), ATTENTION),
    ("lstm-layer cell-dim=8", 8, 4 * affine(28, 8) + 3 * 8),
    ("lstm-layer delay=-3 decay-time=20", 20, 4 * affine(40, 20) + 3 * 20),
    ("lstmp-layer cell-dim=16", 8, LSTMP),
    (f"lstmp-batchnorm-layer cell-dim=16 {DROPOUT}", 8, LSTMP),
    ("fast-lstm-layer cell-dim=8", 8, affine(28, 32) + 3 * 8),
    ("fast-lstm-batchnorm-layer cell-dim=8 delay=2", 8, affine(28, 32) + 3 * 8),
    ("lstmb-layer cell-dim=8 bottleneck-dim=4", 8, 28 * 4 + 4 * 32 + 2 * 32 + 3 * 8),
    ("fast-lstmp-layer cell-dim=16", 8, LSTMP),
    (f"fast-lstmp-batchnorm-layer cell-dim=16 {DROPOUT}", 8, LSTMP),
    (
        "fast-lstmp-layer cell-dim=16 recurrent-projection-dim=5 non-recurrent-projection-dim=2",
        7,
        4 * affine(25, 16) + 3 * 16 + affine(16, 7),
    ),
    ("gru-layer cell-dim=8", 8, 3 * affine(28, 8)),
    ("pgru-layer cell-dim=16", 8, PGRU),
    ("norm-pgru-layer cell-dim=16", 8, PGRU),
    (f"norm-pgru-layer cell-dim=16 {DROPOUT}", 8, PGRU),
    ("opgru-layer cell-dim=16", 8, OPGRU),
    (f"norm-opgru-layer cell-dim=16 {DROPOUT}", 8, OPGRU),
    ("fast-gru-layer cell-dim=8", 8, 2 * affine(28, 8) + affine(20, 8) + 8 * 8),
    ("fast-pgru-layer cell-dim=16", 8, FAST_PGRU),
    (f"fast-norm-pgru-layer cell-dim=16 {DROPOUT}", 8, FAST_PGRU),
    ("fast-opgru-layer cell-dim=16", 8, OPGRU),
    (f"fast-norm-opgru-layer cell-dim=16 {DROPOUT}", 8, OPGRU),
    ("stats-layer config=mean+stddev+count(-6:1:3:6)", 41, 0),
    ("stats-layer config=mean(0:1:1:5)", 20, 0),
    ("spec-augment-layer", 20, 0),
    ("renorm-component target-rms=0.5", 20, 0),
    ("batchnorm-component", 20, 0),
    ("no-op-component input=Append(-1,0)", 40, 0),
    ("linear-component dim=12 orthonormal-constraint=-1.0", 12, 20 * 12),
    ("scale-component", 20, 20),
    ("offset-component param-mean=0.5", 20, 20),
    ("dim-range-component dim=5 dim-offset=3", 5, 0),
    ("delta-layer", 60, 0),
]

# output beside a layer's own, columns
FURTHER = [
    ("lstm-layer cell-dim=8", "c_t", 8),
    ("lstmp-layer cell-dim=16", "c_t", 16),
    ("fast-lstm-layer cell-dim=8", "c", 8),
    ("fast-lstmp-layer cell-dim=16", "c_t", 16),
    *[(f"{kind} cell-dim=16", "h_t", 16) for kind in ("pgru-layer", "norm-opgru-layer")],
    *[(f"{kind} cell-dim=16", "c_t", 16) for kind in ("fast-pgru-layer", "fast-norm-opgru-layer")],
    ("output-layer dim=12", "affine", 12),
    ("output-layer dim=12", "log-softmax", 12),
]


def network(layer: str, output: str = "output name=output") -> Nnet:
    """A network of two inputs, a layer `l` and an output."""
    kind, _, options = layer.partition(" ")
    text = (
        f"input name=ivector dim=10\ninput name=input dim={INPUT_DIM}\n"
        f"{kind} name=l {options}\n{output}\n"
    )
    lines = config_lines(make_layers(text, "test.xconfig"), "test.xconfig")["ref"]
    tensor.random.seed(0)
    return Nnet.from_config(parse_config_lines("\n".join(lines)))


def compute(nnet: Nnet, times: list[int]) -> np.ndarray:
    """The output at these times, from random input at frames -30 to 35."""
    frames = make_indexes(0, np.arange(-30, 36))
    request = ComputationRequest(
        [
            IoSpecification("input", frames),
            IoSpecification("ivector", make_indexes(0, np.zeros(1, int))),
        ],
        [IoSpecification("output", make_indexes(0, np.array(times)))],
    )
    used = [io for io in request.inputs if nnet.node_index(io.name) >= 0]
    request = ComputationRequest(used, request.outputs)
    program = CachingOptimizingCompiler(nnet, OptimizeOptions()).compile(request)
    computer = NnetComputer(ComputeOptions(), program, nnet)
    rng = np.random.default_rng(1)
    for io in request.inputs:
        dim = nnet.input_dim(io.name)
        value = rng.normal(size=(len(io.indexes), dim)).astype(np.float32)
        computer.accept_input(io.name, value)
    computer.run()
    return np.array(computer.get_output("output"))


@pytest.mark.parametrize(("layer", "dim", "parameters"), CASES, ids=[case[0] for case in CASES])
def test_dimension_parameters_and_values(layer: str, dim: int, parameters: int) -> None:
    nnet = network(layer)
    assert nnet.output_dim("output") == dim
    assert sum(c.num_parameters for _, c in nnet.updatable_components()) == parameters
    output = compute(nnet, [0, 3])
    assert output.shape == (2, dim)
    assert np.isfinite(output).all()
    assert output.any() or "spec-augment" in layer  # which zeroes whole frames


@pytest.mark.parametrize(("layer", "name", "dim"), FURTHER)
def test_further_outputs_may_be_used(layer: str, name: str, dim: int) -> None:
    nnet = network(
        layer, f"output name=out2 input=l.{name}\noutput-layer name=output input=l.{name} dim=3"
    )
    assert nnet.output_dim("out2") == dim
    assert np.isfinite(compute(nnet, [0])).all()


def test_output_layer() -> None:
    with_softmax = network("no-op-component", "output-layer name=output dim=6")
    assert np.allclose(np.exp(compute(with_softmax, [0, 1])).sum(axis=1), 1, atol=1e-5)
    plain = "output-layer name=output dim=6 include-log-softmax=false bottleneck-dim=4"
    nnet = network("no-op-component", plain + " output-delay=5 objective-type=quadratic")
    assert sum(c.num_parameters for _, c in nnet.updatable_components()) == 20 * 4 + affine(4, 6)
    assert nnet.config_lines()[-1].endswith("input=Offset(output.affine, 5) objective=quadratic")


def test_every_type_is_here() -> None:
    tried = {layer.split()[0] for layer, *_ in CASES} | {layer.split()[0] for layer, *_ in FURTHER}
    # idct-layer writes a file: see test_configs
    assert set(layer_classes()) - tried == {"input", "output", "idct-layer"}
