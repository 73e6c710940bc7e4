"""Patch and window operators against their reference, on views with gaps, of both float types."""

import numpy as np
import pytest

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.operators.patches import add_patches, gather_patches
from nnet3tools.tensor.operators.windows import add_to_windows, add_weighted_windows, window_dots
from support.row_operators import reference

TYPES = [np.float32, np.float64]

PIECES = np.array([[0, 4, 1, 1], [1, 3, 0, 2], [2, 2, 0, 1], [3, 4, 5, 7]], np.int32)
"""A plain range, every second height, no height at all, a single one."""


def random(rng: np.random.Generator, *shape: int, dtype: type) -> np.ndarray:
    """A view with gaps in every axis but the last."""
    whole = rng.normal(size=(2 * shape[0], *shape[1:-1], shape[-1] + 3)).astype(dtype)
    return whole[::2, ..., 1 : shape[-1] + 1]


def agree(operator, which: int, operands: list, **more: float) -> None:
    """The operator and its reference leave the same in the operand that they write."""
    results = []
    for run in (operator, reference(operator)):
        copies = [o.copy() if isinstance(o, np.ndarray) else o for o in operands]
        target = operands[which]
        views = random(np.random.default_rng(0), *target.shape, dtype=target.dtype)
        views[...] = target
        copies[which] = views
        run(*copies, **more)
        results.append(views.copy())
    np.testing.assert_allclose(results[0], results[1], 2e-5, 2e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_patches(dtype: type) -> None:
    rng = np.random.default_rng(1)
    frames = random(rng, 5, 7, 3, dtype=dtype)
    patches = random(rng, 5, 4, len(PIECES), 3, dtype=dtype)
    agree(gather_patches, 0, [np.full_like(patches, np.nan), frames, PIECES])
    agree(add_patches, 0, [frames, patches, PIECES])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "shift", "width"), [(6, 1, 3), (5, 4, 2), (700, 2, 5), (3, 2, 1)])
@pytest.mark.parametrize("alpha", [1.0, -0.3])
def test_windows(dtype: type, rows: int, shift: int, width: int, alpha: float) -> None:
    rng = np.random.default_rng(2)
    long = random(rng, rows + (width - 1) * shift, 2, 60, dtype=dtype)
    short, weights = random(rng, rows, 2, 60, dtype=dtype), random(rng, rows, 2, width, dtype=dtype)
    agree(window_dots, 0, [np.full_like(weights, np.nan), short, long, shift], alpha=alpha)
    agree(add_weighted_windows, 0, [short, long, weights, shift], alpha=alpha)
    agree(add_to_windows, 0, [long, short, weights, shift], alpha=alpha)


def test_windows_beyond_the_end_are_refused() -> None:
    short, long = np.zeros((4, 1, 2), np.float32), np.zeros((5, 1, 2), np.float32)
    with pytest.raises(ProgramError, match="do not fit"):
        window_dots(np.zeros((4, 1, 3), np.float32), short, long, 1)
