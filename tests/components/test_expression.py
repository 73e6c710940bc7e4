"""ExpressionComponent: flags, files, derivatives, and equality with built-in components."""

import time

import numpy as np
import pytest

from nnet3tools.errors import ConfigError, DataError
from nnet3tools.nnet.components.base import Properties
from support.harness import (
    backward,
    check_component,
    check_output,
    forward,
    from_bytes,
    gradient_holder,
    make,
    rows_of,
    to_bytes,
)

P = Properties


def sig(x):
    return 1 / (1 + np.exp(-x))


CONFIGS = {
    "swish": 'dim=5 expression="x * sigmoid(x)"',
    "sigmoid": 'dim=5 expression="sigmoid(x)"',
    "identity": 'dim=5 expression="x"',
    "scale": 'dim=5 expression="2 * x + 1"',
    "prelu": 'dim=5 params=alpha:5:init=0.25 expression="max(x, 0) + alpha * min(x, 0)"',
    "glu": 'input-parts=a:3,b:3 expression="a * sigmoid(b)"',
    "unused_part": 'input-parts=a:3,b:2 expression="tanh(a)"',
    "gate": 'input-parts=a:3,g:1 expression="a * sigmoid(g)"',
    "affine": 'dim=4 params="w:4x3:stddev=0.5,b:3" expression="affine(x, w, b)" output-dim=3',
    "softmax": 'dim=4 expression="log_softmax(x)"',
    "norm": 'dim=4 params=g:4:init=1,b:4 expression="layer_norm(x, g, b, 1e-5)"',
    "column_norm": 'dim=4 expression="(x - mean(x, axis=0)) / sqrt(var(x, axis=0) + 0.001)"',
    "two": 'dim=4 params=c:4:init=0.5 expression="h = tanh(x * c); concatenate(h, h * x)"',
    "names": 'input-parts=a:2,b:3 expression="concatenate(a, b, exp(b))"',
    "scalar_param": 'dim=3 params=s:1:init=2 expression="s * sin(x)"',
}


@pytest.mark.parametrize("name", CONFIGS)
def test_everything_the_flags_promise(name):
    check_component(make(f"type=ExpressionComponent {CONFIGS[name]}"))


def test_outputs():
    check_output(make(f"type=ExpressionComponent {CONFIGS['swish']}"), lambda x: x * sig(x))
    glu = make(f"type=ExpressionComponent {CONFIGS['glu']}")
    check_output(glu, lambda x: x[:, :3] * sig(x[:, 3:]))
    assert (glu.input_dim, glu.output_dim) == (6, 3)


def flags(expression: str, more: str = "dim=4") -> Properties:
    return make(f'type=ExpressionComponent {more} expression="{expression}"').properties


def test_flags_follow_from_the_expression():
    in_place = P.PROPAGATE_IN_PLACE | P.BACKPROP_IN_PLACE
    assert flags("x * sigmoid(x)") == P.SIMPLE | in_place | P.BACKPROP_NEEDS_INPUT
    assert flags("sigmoid(x)") == P.SIMPLE | in_place | P.BACKPROP_NEEDS_OUTPUT
    assert flags("tanh(x)") == P.SIMPLE | in_place | P.BACKPROP_NEEDS_OUTPUT
    assert flags("2 * x") == P.SIMPLE | in_place
    assert flags("softmax(x)") == P.SIMPLE | P.USES_MEMO
    assert flags("a * b", "input-parts=a:2,b:2") == P.SIMPLE | P.BACKPROP_NEEDS_INPUT
    assert flags("x * w", "dim=4 params=w:4") & P.UPDATABLE


LSTM = (
    "input-parts=xi:3,xf:3,xc:3,xo:3,c:3 params=wi:3,wf:3,wo:3 "
    'expression="i = sigmoid(xi + wi * c); f = sigmoid(xf + wf * c); '
    "n = f * c + i * tanh(xc); o = sigmoid(xo + wo * n); concatenate(n, o * tanh(n))"
    '"'
)
PAIRS = {
    "relu": ("RectifiedLinearComponent dim=6", 'dim=6 expression="relu(x)"'),
    "sigmoid": ("SigmoidComponent dim=6", 'dim=6 expression="sigmoid(x)"'),
    "tanh": ("TanhComponent dim=6", 'dim=6 expression="tanh(x)"'),
    "log_softmax": ("LogSoftmaxComponent dim=6", 'dim=6 expression="log_softmax(x)"'),
    "softmax": ("SoftmaxComponent dim=6", 'dim=6 expression="softmax(x)"'),
    "batch_norm": (
        "BatchNormComponent dim=6",
        'dim=6 expression="(x - mean(x, axis=0)) / sqrt(var(x, axis=0) + 0.001)"',
    ),
    "lstm": (
        "LstmNonlinearityComponent cell-dim=3 param-stddev=0.5 tanh-self-repair-threshold=0 "
        "sigmoid-self-repair-threshold=0 self-repair-scale=0",
        LSTM,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_numbers_and_gradients_of_the_built_in_component(name):
    built_in, mine = (
        make(f"type={PAIRS[name][0]}"),
        make(f"type=ExpressionComponent {PAIRS[name][1]}"),
    )
    if name == "lstm":
        mine.unvectorize(built_in.vectorize())
    rng, rows = np.random.default_rng(1), rows_of(mine, 9)
    x = rng.normal(size=(9, mine.input_dim)).astype(np.float32)
    dy = rng.normal(size=(9, mine.output_dim)).astype(np.float32)
    found = []
    for component in (built_in, mine):
        y, memo = forward(component, x, rows)
        holder = gradient_holder(component) if name == "lstm" else None
        dx = backward(component, x, y, memo, dy, rows, holder)
        found.append((y, dx, np.zeros(0) if holder is None else holder.vectorize()))
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 2e-4, 2e-5)


BAD = {
    "syntax": ('dim=4 expression="x * * 2"', "at column 5 of formula"),
    "open": ('dim=4 expression="(x + 1"', "expected '\\)', found the end"),
    "name": ('dim=4 expression="x + y"', "unknown name 'y' at column 5"),
    "function": (
        'dim=4 expression="sigmiod(x)"',
        r"unknown function 'sigmiod' \(nearest known: sig",
    ),
    "shapes": ('dim=4 params=a:5 expression="x + a"', "do not broadcast: x input float32"),
    "cycle": ('dim=4 expression="a = b + x; b = a * 2; b"', "cycle: a -> b -> a"),
    "gradient": ('dim=4 expression="x > 0"', "no gradient: gt bool"),
    "value": ('dim=4 expression="sum(x)"', "expected .rows x dim."),
    "output-dim": ('dim=4 output-dim=3 expression="x"', "has 4 columns, not 3"),
    "arguments": ('dim=4 expression="sigmoid(x, 2)"', "takes 1 operands"),
    "missing": ("dim=4", "missing required key 'expression'"),
    "param": ('dim=4 params=a expression="x"', "expected name:dim"),
    "param key": ('dim=4 params=a:4:start=1 expression="x"', "expected init="),
    "twice": ('dim=4 params=x:4 expression="x"', "different names"),
    "huge": ('dim=4 params=a:999999999999 expression="x"', "positive dimension"),
    "unknown key": ('dim=4 params=a:4:init=1 expression="x*a" foo=1', "foo=1"),
    "deep": (f'dim=4 expression="{"(" * 5000}x{")" * 5000}"', "at most 100 levels"),
    "repeats": ('dim=4 expression="repeat(x, 1000000000)"', "cannot repeat x"),
    "explosion": (
        'dim=4 expression="a = repeat(x, 60000); transpose(a) * a"',
        "broadcast|too large",
    ),
    "outer": (
        'dim=4 expression="a = reshape(repeat(x, 60000), [-1, 1]); a * transpose(a)"',
        "too large",
    ),
    "random": ('dim=4 expression="dropout(x, 0.5)"', "unknown function 'dropout'"),
}


def test_the_time_of_a_formula_is_linear_in_its_terms():
    """40,000 terms once took minutes: placing the blocks of a graph was quadratic."""

    def seconds(count):
        terms = " + ".join(f"x * {i}" for i in range(count))
        began = time.process_time()
        make(f'type=ExpressionComponent dim=4 expression="{terms}"')
        return time.process_time() - began

    few = min(seconds(500) for _ in range(3))
    assert any(seconds(4000) < 8 * 3 * few for _ in range(3)), "64 times is quadratic"


@pytest.mark.parametrize("name", BAD)
def test_bad_config_lines(name):
    config, message = BAD[name]
    with pytest.raises(ConfigError, match=message):
        make(f"type=ExpressionComponent {config}")


@pytest.mark.parametrize("binary", [True, False])
def test_garbled_files_are_refused(binary):
    data = to_bytes(make(f"type=ExpressionComponent {CONFIGS['prelu']}"), binary)
    for old, new in (
        (b"alpha * min", b"alpha * man"),
        (b"alpha *", b"alpha ,"),
        (b"max(x,", b"max(y,"),
    ):
        changed = data.replace(b" ".join(old.split()), new)
        if changed != data:
            with pytest.raises(DataError):
                from_bytes(changed, binary)
    for end in range(30, len(data) - 1, 7):
        with pytest.raises(DataError):
            from_bytes(data[:end], binary)
