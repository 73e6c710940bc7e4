"""Fused formulas compared with the same formulas run as graphs: values and all derivatives."""

import time

import numpy as np
import pytest

from nnet3tools.expression.row_function import RowFunction

PARTS, PARAMS = {"a": 3, "b": 3, "c": 2}, {"p": (3,), "q": (2,)}
TEXTS = [
    "a * sigmoid(b)",
    "where(a > b, p * a, b)",
    "concatenate(a * p, tanh(c) * q, b)",
    "h = tanh(a * p); concatenate(h, h * b, sqr(c))",
    "sigmoid(a)",
    "concatenate(sigmoid(a), tanh(c))",
    "max(a, b) / (1 + sqr(p)) - 3",
    "-a",
]


def run(function, seed=0, in_float64=True):
    """Value and derivatives of the function for random operands."""
    rng = np.random.default_rng(seed)
    kind = np.float64 if in_float64 else np.float32
    whole = rng.normal(size=(6, 8)).astype(kind)
    operands = {"a": whole[:, :3], "b": whole[:, 3:6], "c": whole[:, 6:]}
    operands |= {n: rng.normal(size=s).astype(kind) for n, s in PARAMS.items()}
    out = np.full((6, function.output_dim), np.nan, kind)
    memo = function.forward(operands, out)
    derivs = np.full((6, 8), np.nan, kind)
    params = {n: np.ones(s, kind) for n, s in PARAMS.items()}
    function.backward(
        operands if function.needs_input else {n: operands[n] for n in PARAMS},
        out if function.needs_output else None,
        rng.normal(size=out.shape).astype(kind),
        memo,
        {"a": derivs[:, :3], "b": derivs[:, 3:6], "c": derivs[:, 6:]},
        params,
        0.5,
    )
    return out, derivs, *params.values()


@pytest.mark.parametrize("text", TEXTS)
def test_fused_is_the_graph(text):
    fused = RowFunction(text, PARTS, PARAMS)
    assert fused.is_fused
    # checkpoints are not elementwise, so the graph is used
    graph = RowFunction(f"checkpoint({text})" if ";" not in text else text, PARTS, PARAMS)
    if ";" in text:
        *definitions, value = text.split(";")
        graph = RowFunction(";".join([*definitions, f"checkpoint({value})"]), PARTS, PARAMS)
    assert not graph.is_fused
    for found, expected in zip(run(fused), run(graph), strict=True):
        np.testing.assert_allclose(found, expected, 1e-10, 1e-10)


@pytest.mark.parametrize("text", ["a * sigmoid(b)", "softmax(a)", "a - mean(a, axis=0)"])
def test_no_rows_and_one_row(text):
    function = RowFunction(text, {"a": 3, "b": 3}, {})
    for rows in (0, 1):
        x = np.ones((rows, 3), np.float32)
        out = np.empty_like(x)
        memo = function.forward({"a": x, "b": x}, out)
        derivs = {n: np.full_like(x, np.nan) for n in "ab"}
        function.backward({"a": x, "b": x}, out, out, memo, derivs, None)
        assert all(np.isfinite(d).all() for d in derivs.values())


GRAPHS = ["softmax(a)", "(a - mean(a, axis=0)) * p", "layer_norm(a, p) * sigmoid(b)"]


def operands_of(seed):
    rng = np.random.default_rng(seed)
    found = {n: rng.normal(size=(5, d)) for n, d in PARTS.items()}
    return found | {n: rng.normal(size=s) for n, s in PARAMS.items()}


def derivatives(function, memo, seed):
    derivs = {n: np.full((5, d), np.nan) for n, d in PARTS.items()}
    params = {n: np.zeros(s) for n, s in PARAMS.items()}
    out_deriv = np.random.default_rng(seed).normal(size=(5, function.output_dim))
    function.backward({}, None, out_deriv, memo, derivs, params)
    return [*derivs.values(), *params.values()]


@pytest.mark.parametrize("text", GRAPHS)
def test_memos_of_several_forward_passes_do_not_disturb_each_other(text):
    expected = []
    for seed in range(3):
        function, out = RowFunction(text, PARTS, PARAMS), np.empty((5, 3))
        expected.append(derivatives(function, function.forward(operands_of(seed), out), seed))
    function, memos = RowFunction(text, PARTS, PARAMS), {}
    for seed in range(3):
        memos[seed] = function.forward(operands_of(seed), np.empty((5, 3)))
        function.infer(operands_of(9), np.empty((5, 3)))
    for seed in (1, 2, 0, 1):  # the last one again
        for found, array in zip(
            derivatives(function, memos[seed], seed), expected[seed], strict=True
        ):
            np.testing.assert_array_equal(found, array)


def test_graphs_are_used_again_once_their_memo_is_gone():
    function, x = RowFunction("softmax(a)", PARTS, PARAMS), operands_of(0)
    first = function.forward(x, np.empty((5, 3)))
    second = function.forward(x, np.empty((5, 3)))
    assert first.run is not second.run
    graph = first.run
    del first
    assert function.forward(x, np.empty((5, 3))).run is graph


def test_a_memo_keeps_no_more_than_the_derivatives_read():
    whole, rows = {"a": 64}, np.ones((128, 64), np.float32)
    for text, matrices in (("log_softmax(a)", 1), ("a - mean(a, axis=0)", 0), ("layer_norm(a)", 1)):
        function = RowFunction(text, whole, {})
        memo = function.forward({"a": rows}, np.empty_like(rows))
        assert memo.run.execution.num_bytes == matrices * rows.nbytes, text


def test_few_sizes_are_kept():
    function = RowFunction("softmax(a)", {"a": 3}, {})
    for rows in range(1, 30):
        x = np.ones((rows, 3), np.float32)
        function.infer({"a": x}, np.empty_like(x))
    assert len(function._idle) == 16


@pytest.mark.parametrize("form", ["{}", "concatenate({})"])
def test_many_terms_take_linear_time(form):
    def seconds(count):
        joiner = " + " if form == "{}" else ", "
        text = form.format(joiner.join(f"x * {i}.5" for i in range(count)))
        start = time.process_time()
        RowFunction(text, {"x": 2}, {})
        return time.process_time() - start

    few = min(seconds(100) for _ in range(3))
    tries = (seconds(1000) < 35 * few for _ in range(3))
    assert any(tries), "10 times is linear, 100 times is quadratic"


@pytest.mark.parametrize("count", [99, 101, 150])
def test_pieces_of_a_concatenation_keep_their_own_derivatives(count):
    """The derivatives of pieces 100 and higher were once confused with values."""
    text = ", ".join(f"sigmoid(x * {i})" for i in range(1, count + 1))
    function = RowFunction(f"concatenate({text})", {"x": 1}, {})
    x = np.array([[0.3], [-0.7]], np.float32)
    out, deriv = np.empty((2, count), np.float32), np.zeros((2, 1), np.float32)
    memo = function.forward({"x": x}, out)
    numbers = np.arange(1, count + 1)
    value = 1 / (1 + np.exp(-x.astype(float) * numbers))
    np.testing.assert_allclose(out, value, rtol=1e-4, atol=1e-30)
    adj = np.random.default_rng(0).normal(size=out.shape).astype(np.float32)
    function.backward({"x": x}, out, adj, memo, {"x": deriv}, None)
    expected = (adj * numbers * value * (1 - value)).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(deriv, expected, rtol=1e-3)
