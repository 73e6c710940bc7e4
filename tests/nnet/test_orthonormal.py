"""The semi-orthogonal constraint: convergence, what it preserves, which components it changes."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.orthonormal import (
    constrain_matrix,
    constrain_orthonormal,
    constrained_components,
)


def start(rows: int, columns: int, scale: float) -> np.ndarray:
    rng = np.random.default_rng(2)
    q, _ = np.linalg.qr(rng.normal(size=(columns, rows)))
    return (scale * (q.T + 0.05 * rng.normal(size=(rows, columns)))).astype(np.float32)


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_rows_become_orthogonal_and_of_the_length_asked_for(scale: float) -> None:
    m = start(5, 12, scale)
    for _ in range(30):
        constrain_matrix(m, scale, "x")
    np.testing.assert_allclose(m @ m.T, scale**2 * np.eye(5), atol=1e-5)


def test_one_step_is_the_formula() -> None:
    m = start(4, 9, 1.0)
    p = m.astype(np.float64) @ m.T
    expected = m - 4.0 * 0.125 * (p - np.eye(4)) @ m
    constrain_matrix(m, 1.0, "x")
    np.testing.assert_allclose(m, expected, atol=1e-6)


def test_floating_scale_changes_the_matrix_orthogonally_to_itself() -> None:
    m = start(5, 12, 3.0)
    before = m.copy()
    constrain_matrix(m, -1.0, "x")
    assert abs(float((m - before).ravel() @ before.ravel())) < 1e-3
    for _ in range(60):
        constrain_matrix(m, -1.0, "x")
    p = m @ m.T
    np.testing.assert_allclose(p, p[0, 0] * np.eye(5), atol=1e-3)


def test_zero_matrix_with_floating_scale_stays() -> None:
    m = np.zeros((3, 5), np.float32)
    constrain_matrix(m, -1.0, "x")
    assert not m.any()


@pytest.mark.parametrize(
    "line",
    [
        "type=LinearComponent input-dim=8 output-dim=3",
        "type=LinearComponent input-dim=3 output-dim=8",
        "type=NaturalGradientAffineComponent input-dim=8 output-dim=3",
        "type=TdnnComponent input-dim=4 output-dim=3 time-offsets=0,1",
    ],
)
def test_components_are_constrained_some_of_the_time(line: str) -> None:
    text = f"component name=c {line} orthonormal-constraint=1.0\n"
    dim = 4 if "Tdnn" in line else int(line.split("input-dim=")[1].split()[0])
    text += f"input-node name=input dim={dim}\noutput-node name=output input=c\n"
    nnet = Nnet.from_config(
        parse_config_lines(text + "component-node name=c component=c input=input\n")
    )
    (component,) = nnet.components
    matrix = next(iter(component.parameters().values()))  # type: ignore[attr-defined]
    values = start(*sorted(matrix.shape), 1.0)
    matrix[...] = values if values.shape == matrix.shape else values.T
    tensor.random.seed(1)
    changes = 0
    for _ in range(100):
        before = matrix.copy()
        constrain_orthonormal(constrained_components(nnet))
        changes += not np.array_equal(before, matrix)
    assert 5 < changes < 50
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-3)
