"""One check for every operator: value against a plain formula, derivatives against differences."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools import expression as ex
from nnet3tools import tensor
from nnet3tools.tensor.formulas import type_of_dtype

EPSILON = 1e-6


def inputs_of(graph: ex.Graph, arrays: Sequence[np.ndarray], trainable: bool = True) -> list:
    """One input node for each array, named x0, x1, ..."""
    return [
        graph.input(f"x{i}", a.shape, type_of_dtype(a.dtype), trainable and a.dtype.kind == "f")
        for i, a in enumerate(arrays)
    ]


def run(
    build: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    seed: np.ndarray | None = None,
    **kind: Any,
) -> tuple[np.ndarray, list[np.ndarray | None]]:
    """Value and gradients (by the arrays) of the node that `build` makes of inputs."""
    graph = ex.Graph(**kind)
    nodes = inputs_of(graph, arrays)
    root = build(*nodes)
    tensor.random.seed(3)
    graph.forward(root, **{n.name: a for n, a in zip(nodes, arrays, strict=True)})
    value = np.array(root.value)
    if seed is None:
        return value, []
    graph.backward({root: seed})
    return value, [None if n.grad is None else np.array(n.grad) for n in nodes]


def check(
    build: Callable[..., Any],
    formula: Callable[..., Any] | None,
    *arrays: np.ndarray,
    tolerance: float = 1e-6,
) -> None:
    """Check value and derivatives in float64, and float32 against float64."""
    rng = np.random.default_rng(0)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    value, _ = run(build, wide)
    if formula is not None:
        expected = np.asarray(formula(*wide))
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, 1e-9, 1e-9)
    seed = rng.normal(size=value.shape)
    _, grads = run(build, wide, seed)
    for number, grad in enumerate(grads):
        if wide[number].dtype.kind == "f":
            grad = np.zeros(wide[number].shape) if grad is None else grad
            numeric = differences(build, wide, number, seed)
            scale = np.abs(numeric).max(initial=0.0) + 1e-3
            np.testing.assert_allclose(grad, numeric, 0, tolerance * scale * 100)
    narrow = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in arrays]
    value32, grads32 = run(build, narrow, seed.astype(np.float32))
    np.testing.assert_allclose(value32, value, 1e-3, 1e-4)
    for mine, exact in zip(grads32, grads, strict=True):
        if exact is not None:
            scale = np.abs(exact).max(initial=0.0) + 1e-3
            np.testing.assert_allclose(mine, exact, 0, 2e-3 * scale)


def differences(
    build: Callable[..., Any], arrays: Sequence[np.ndarray], number: int, seed: np.ndarray
) -> np.ndarray:
    """Central differences of the sum of seed * value by one array."""
    graph = ex.Graph(inference=True)
    nodes = inputs_of(graph, arrays)
    root = build(*nodes)
    given = {n.name: a.copy() for n, a in zip(nodes, arrays, strict=True)}
    x = given[f"x{number}"]
    out = np.zeros_like(x)

    def objective() -> float:
        tensor.random.seed(3)
        graph.forward(root, **given)
        return float(np.sum(root.value * seed))

    for at in np.ndindex(x.shape):
        kept = x[at]
        x[at] = kept + EPSILON
        above = objective()
        x[at] = kept - EPSILON
        out[at] = (above - objective()) / (2 * EPSILON)
        x[at] = kept
    return out


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    """Random numbers that keep away from the kinks of the usual activations."""
    x = np.random.default_rng(seed).normal(size=shape)
    return x + 0.05 * np.sign(x)
