"""Operators of docs/expression.md on the emulated device: values and gradients as on the host."""

import numpy as np
import pytest

from nnet3tools import expression as ex
from support.emulated_cuda import fetch, mirror, needs_compiler, to_device
from support.expression_checks import inputs_of, run
from support.marian_operators import HOST_ONLY, TRIALS

pytestmark = needs_compiler
QUICK = {"softmax", "gather", "logcumsumexp", "sparsemax", "bdot", "gruOps"}


@pytest.mark.parametrize(
    "name",
    [
        n if n in QUICK else pytest.param(n, marks=pytest.mark.slow)
        for n in TRIALS
        if n not in HOST_ONLY
    ],
)
def test_operators_of_the_table(name, device):
    build, _, arrays = TRIALS[name]
    narrow = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in arrays]
    shape = run(build, narrow)[0].shape
    seed = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected, grads = run(build, narrow, seed)
    graph = ex.Graph(like=to_device(np.zeros(0, np.float32)))
    nodes = inputs_of(graph, narrow)
    root = build(*nodes)
    graph.forward(root, **{n.name: mirror(a) for n, a in zip(nodes, narrow, strict=True)})
    value = fetch(root.value).copy()
    graph.backward({root: mirror(seed)})
    np.testing.assert_allclose(value, expected, 1e-4, 1e-5)
    for node, grad in zip(nodes, grads, strict=True):
        if grad is not None:
            np.testing.assert_allclose(fetch(node.grad), grad, 1e-3, 1e-4)


def test_sparse_places_that_are_fed(device):
    graph = ex.Graph(like=to_device(np.zeros(0, np.float32)))
    values = graph.param("values", to_device(np.float32([1, 2, 3])))
    x = graph.param("x", to_device(np.eye(4, dtype=np.float32)))
    at, starts = (graph.input(n, (3,), ex.Type.INT32) for n in ("at", "starts"))
    y = ex.csr_dot((2, 4), values, at, starts, x)
    for places in ([0, 2, 3], [3, 1, 0]):
        graph.forward(y, at=mirror(np.int32(places)), starts=mirror(np.int32([0, 1, 3])))
        expected = np.zeros((2, 4), np.float32)
        expected[[0, 1, 1], places] = [1, 2, 3]
        assert fetch(y.value).tolist() == expected.tolist()
        graph.backward({y: mirror(2 * np.ones((2, 4), np.float32))})
        assert fetch(values.grad).tolist() == [2, 2, 2]
        assert fetch(x.grad).tolist() == np.repeat(2 * expected.sum(0), 4).reshape(4, 4).tolist()
