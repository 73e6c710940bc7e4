"""Optimizers on the emulated device: parameters and averages as on the host."""

import numpy as np
import pytest

from nnet3tools import expression as ex
from nnet3tools.expression.optimizers import SGD, Adagrad, AdamW
from nnet3tools.expression.schedules import WarmUp
from support.emulated_cuda import fetch, mirror, needs_compiler, to_device

pytestmark = needs_compiler
OPTIONS = {
    "schedule": WarmUp(3), "clip_norm": 0.5, "clip_element": 0.4, "smoothing": 0.1, "accumulate": 2
}  # fmt: skip


def train(kind, put, like):
    graph = ex.Graph(like=like)
    rng = np.random.default_rng(0)
    w = graph.param("w", put(rng.normal(size=(4, 3)).astype(np.float32)))
    x = graph.input("x", (5, 4))
    loss = ex.mean(ex.sqr(ex.tanh(x @ w) - 0.5), None)
    optimizer = kind(graph, 0.1, **OPTIONS)
    for _ in range(6):
        graph.forward(loss, x=put(rng.normal(size=(5, 4)).astype(np.float32)))
        graph.backward()
        optimizer.update()
    with optimizer.smoothed():
        average = fetch(w.value).copy()
    return fetch(w.value).copy(), average


@pytest.mark.parametrize("kind", [SGD, Adagrad, AdamW])
def test_training_on_the_device_is_that_on_the_host(kind, device):
    expected = train(kind, np.array, None)
    for found, array in zip(
        train(kind, mirror, to_device(np.zeros(0, np.float32))), expected, strict=True
    ):
        np.testing.assert_allclose(found, array, 1e-5, 1e-6)
