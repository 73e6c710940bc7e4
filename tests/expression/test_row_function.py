"""Fused formulas against the same formulas run as graphs: values and all derivatives."""

from __future__ import annotations

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
    """Value and derivatives on random operands."""
    rng = np.random.default_rng(seed)
    kind = np.float64 if in_float64 else np.float32
    whole = rng.normal(size=(6, 8)).astype(kind)
    operands = {"a": whole[:, :3], "b": whole[:, 3:6], "c": whole[:, 6:]}
    operands |= {n: rng.normal(size=s).astype(kind) for n, s in PARAMS.items()}
    out = np.full((6, function.output_dim), np.nan, kind)
    function.forward(operands, out)
    derivs = np.full((6, 8), np.nan, kind)
    params = {n: np.ones(s, kind) for n, s in PARAMS.items()}
    function.backward(
        operands if function.needs_input else {n: operands[n] for n in PARAMS},
        out if function.needs_output else None,
        rng.normal(size=out.shape).astype(kind),
        {"a": derivs[:, :3], "b": derivs[:, 3:6], "c": derivs[:, 6:]},
        params,
        0.5,
    )
    return out, derivs, *params.values()


@pytest.mark.parametrize("text", TEXTS)
def test_fused_is_the_graph(text):
    fused = RowFunction(text, PARTS, PARAMS)
    assert fused.is_fused
    # a checkpoint is no elementwise node: the graph has to run
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
        function.forward({"a": x, "b": x}, out)
        derivs = {n: np.full_like(x, np.nan) for n in "ab"}
        function.backward({"a": x, "b": x}, out, out, derivs, None)
        assert all(np.isfinite(d).all() for d in derivs.values())
