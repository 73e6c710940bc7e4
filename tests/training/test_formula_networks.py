"""Networks in which a formula stands for a built-in component: the same numbers all the way.

Outputs, input derivatives, parameter gradients, and the parameters after several minibatches of
training, by programs with and without optimizations.
"""

from dataclasses import fields, replace

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.arithmetic import scale_nnet, set_as_gradient
from nnet3tools.nnet.components.lstm import LstmNonlinearityComponent
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.commands import Backprop, Propagate
from nnet3tools.training.example import NnetExample
from nnet3tools.training.merging import merge_examples
from nnet3tools.training.running import computation_request
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.configs import in_a_row
from support.training_helpers import example

FEED_FORWARD = """
input-node name=input dim=3
component name=a1 type=NaturalGradientAffineComponent input-dim=9 output-dim=6 learning-rate=0.02
component name=f {hidden}
component name=a2 type=AffineComponent input-dim=6 output-dim=5 learning-rate=0.03
component name=g {last}
component-node name=a1 component=a1 input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=f component=f input=a1
component-node name=a2 component=a2 input=Sum(f, Offset(f, 1))
component-node name=g component=g input=a2
output-node name=output input=g objective=linear
"""

RECURRENT = """
input-node name=input dim=3
component name=w type=NaturalGradientAffineComponent input-dim=7 output-dim=16 learning-rate=0.1
component name=lstm {hidden}
component name=a type=AffineComponent input-dim=4 output-dim=5 learning-rate=0.05
component name=g {last}
component-node name=w component=w input=Append(input, IfDefined(Offset(m, -1)))
component-node name=lstm component=lstm input=Append(w, IfDefined(Offset(c, -1)))
dim-range-node name=c input-node=lstm dim-offset=0 dim=4
dim-range-node name=m input-node=lstm dim-offset=4 dim=4
component-node name=a component=a input=m
component-node name=g component=g input=a
output-node name=output input=g objective=linear
"""

SELF = "self-repair-scale=0"
FORMULA = "type=ExpressionComponent"
LAST = "type=LogSoftmaxComponent dim=5"
LSTM_OPTIONS = "learning-rate=0.2 learning-rate-factor=0.5 max-change=0.02 l2-regularize=0.01"
LSTM_FORMULA = (
    f"{FORMULA} input-parts=xi:4,xf:4,xc:4,xo:4,c:4 params=wi:4,wf:4,wo:4 {LSTM_OPTIONS} "
    'expression="i = sigmoid(xi + wi * c); f = sigmoid(xf + wf * c); n = f * c + i * tanh(xc); '
    'o = sigmoid(xo + wo * n); concatenate(n, o * tanh(n))"'
)
# kind: network, then the two lines of the hidden layer or of the last one
PAIRS = {
    "relu": ("hidden", f"type=RectifiedLinearComponent dim=6 {SELF}", 'dim=6 expression="relu(x)"'),
    "sigmoid": ("hidden", f"type=SigmoidComponent dim=6 {SELF}", 'dim=6 expression="sigmoid(x)"'),
    "tanh": ("hidden", f"type=TanhComponent dim=6 {SELF}", 'dim=6 expression="tanh(x)"'),
    "batch_norm": (
        "hidden",
        "type=BatchNormComponent dim=6 target-rms=1.0",
        'dim=6 expression="(x - mean(x, axis=0)) / sqrt(var(x, axis=0) + 0.001)"',
    ),
    "batch_norm_function": (
        "hidden",
        "type=BatchNormComponent dim=6 target-rms=1.0",
        'dim=6 expression="batch_norm(x)"',
    ),
    "log_softmax": ("last", LAST, 'dim=5 expression="log_softmax(x)"'),
    "log_softmax_spelt_out": ("last", LAST, 'dim=5 expression="x - logsumexp(x, axis=1)"'),
    "lstm": (
        "recurrent",
        f"type=LstmNonlinearityComponent cell-dim=4 param-stddev=0.5 {SELF} {LSTM_OPTIONS}",
        LSTM_FORMULA,
    ),
}
OPTIONS = {
    "optimized": OptimizeOptions(),
    "plain": OptimizeOptions(optimize=False),
    "compressed": replace(OptimizeOptions(), memory_compression_level=2),
}


def networks(kind: str) -> list[Nnet]:
    """The network with the built-in component and that with the formula, parameters equal."""
    place, built_in, formula = PAIRS[kind]
    found = []
    for line in (built_in, formula if formula.startswith("type") else f"{FORMULA} {formula}"):
        template = RECURRENT if place == "recurrent" else FEED_FORWARD
        hidden = f"type=TanhComponent dim=6 {SELF}" if place == "last" else line
        text = template.format(hidden=hidden, last=line if place == "last" else LAST)
        tensor.random.seed(1)
        found.append(Nnet.from_config(parse_config_lines(text)))
    theirs, ours = found
    for name, component in theirs.updatable_components():
        index = ours.component_names.index(name)
        ours.components[index].unvectorize(component.vectorize())
    return found


def minibatch(seed: int) -> NnetExample:
    """Three sequences merged; another structure now and then."""
    frames = 5 + seed % 2
    parts = [example(frames, context=2, seed=10 * seed + i) for i in range(3)]
    return merge_examples(parts, False)


def wanted(nnet: Nnet) -> ComputationRequest:
    """A request for outputs, the model derivative and the derivative of the input."""
    request = computation_request(nnet, minibatch(0), True, True)
    request.inputs[0].has_deriv = True
    return request


def compute(nnet: Nnet, options: OptimizeOptions) -> dict[str, np.ndarray]:
    """Outputs, input derivatives and parameter gradients on random numbers."""
    request = wanted(nnet)
    gradient = nnet.copy()
    scale_nnet(gradient, 0.0)
    set_as_gradient(gradient)
    computation = CachingOptimizingCompiler(nnet, options).compile(request)
    computer = NnetComputer(ComputeOptions(), computation, nnet, gradient)
    rng = np.random.default_rng(3)
    sizes = [(io.name, len(io.indexes)) for io in (*request.inputs, *request.outputs)]
    given = {name: rng.normal(size=(n, 3 + 2 * (name == "output"))) for name, n in sizes}
    computer.accept_input("input", given["input"].astype(np.float32))
    computer.run()
    results = {"output": computer.get_output("output").copy()}
    computer.accept_input("output", given["output"].astype(np.float32))
    computer.run()
    results["input derivative"] = computer.get_output("input").copy()
    return results | parameters(gradient)


def parameters(nnet: Nnet) -> dict[str, np.ndarray]:
    """The trainable numbers of every component."""
    return {name: component.vectorize() for name, component in nnet.updatable_components()}


def compare(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = 5e-5
) -> None:
    """Equal up to float32's rounding of each array's largest element."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.abs(array).max() > 1e-4, f"{name} shows nothing"
        scale = np.abs(array).max()
        np.testing.assert_allclose(found[name], array, 0, tolerance * scale, err_msg=name)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", PAIRS)
def test_outputs_input_derivatives_and_gradients(kind, options):
    theirs, ours = networks(kind)
    compare(compute(ours, OPTIONS[options]), compute(theirs, OPTIONS[options]))


@pytest.mark.parametrize("options", ["optimized", "plain"])
@pytest.mark.parametrize("kind", PAIRS)
def test_parameters_after_several_minibatches(kind, options, monkeypatch):
    # a formula's parameters are trained by plain SGD: so are the built-in peephole weights here
    monkeypatch.setattr(
        LstmNonlinearityComponent,
        "_update",
        lambda self, deriv: tensor.add(self.params, deriv, alpha=self.learning_rate),
    )
    found = []
    for nnet in networks(kind):
        before = parameters(nnet)
        tensor.random.seed(5)
        trainer = NnetTrainer(NnetTrainerOptions(momentum=0.3, optimization=OPTIONS[options]), nnet)
        for seed in range(8):
            trainer.train(minibatch(seed))
        after = parameters(nnet)
        found.append({name: after[name] - before[name] for name in after})
    compare(found[1], found[0], 1e-3)  # natural gradient makes roundings grow


@pytest.mark.parametrize("kind", ["relu", "sigmoid", "tanh"])
def test_in_place_flags_are_made_use_of(kind):
    """Programs with the formula run in place wherever those with the built-in component do."""
    theirs, ours = networks(kind)
    counts = []
    for nnet in (theirs, ours):
        index = nnet.component_names.index("f")
        computation = CachingOptimizingCompiler(nnet).compile(wanted(nnet))
        commands = [c for c in computation.commands if getattr(c, "component", -1) == index]
        counts.append(
            [
                sum(isinstance(c, Propagate) and c.input == c.output for c in commands),
                sum(isinstance(c, Backprop) and c.in_deriv == c.out_deriv for c in commands),
            ]
        )
    assert counts[1][0] >= 1
    assert counts[1][1] >= 1
    assert counts[1] >= counts[0]


LOOP = in_a_row("""input dim=3
w AffineComponent input-dim=9 output-dim=6 learning-rate=0.1 \
input=Append(input, IfDefined(Offset(f, -1)))
f ExpressionComponent dim=6 params=g:6:init=1.5 expression="{formula}"
a AffineComponent input-dim=6 output-dim=5 learning-rate=0.05
output objective=linear""")
ROW_FORMULAS = {
    "columns": "g * (x - mean(x, axis=0)) / sqrt(var(x, axis=0) + 0.001)",
    "rows": "tanh(layer_norm(x, g))",
    "elements": "tanh(g * x)",
}


@pytest.mark.parametrize("kind", ROW_FORMULAS)
def test_joining_the_time_steps_of_a_model_update_does_not_mix_their_rows(kind):
    """In a loop each step is a minibatch of its own to a formula with statistics over rows."""
    nnet = Nnet.from_config(parse_config_lines(LOOP.format(formula=ROW_FORMULAS[kind])))
    expected = compute(nnet, OPTIONS["plain"])
    compare(compute(nnet, OPTIONS["optimized"]), expected)
    for option in fields(OptimizeOptions()):
        if option.default is True:  # each pass left out
            compare(compute(nnet, replace(OptimizeOptions(), **{option.name: False})), expected)
