"""Transposes, joined and split arrays, over types, strides, sizes and every order of axes."""

import itertools

import numpy as np
import pytest

from nnet3tools import tensor

TYPES = ["bool", "int32", "uint32", "float16", "float32", "float64"]
SHAPES = [(5,), (3, 4), (1, 7), (0, 3), (2, 3, 4), (2, 1, 3, 5)]
LARGE = [
    ((1030, 515), (1, 0)),
    ((300, 1024), (1, 0)),
    ((70, 90, 110), (2, 1, 0)),
    ((4, 300, 500), (0, 2, 1)),
]


def data(shape, dtype="float32", gaps=False, seed=0):
    """Random numbers; with gaps along every axis, the first backwards."""
    whole = tuple(2 * n for n in shape) if gaps else shape
    made = (10 * np.random.default_rng(seed).normal(size=whole)).astype(dtype)
    if not gaps:
        return made
    return made[tuple(slice(None, None, 2) for _ in shape)][::-1]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_order_of_axes(dtype, shape):
    for axes, gaps, wide in itertools.product(
        itertools.permutations(range(len(shape))), (False, True), (False, True)
    ):
        src = data(shape, dtype, gaps)
        out = data(tuple(shape[a] for a in axes), dtype, wide, seed=1)
        before = out.copy()
        tensor.transpose(out, src, axes)
        np.testing.assert_array_equal(out, src.transpose(axes))
        if dtype in ("float32", "float64"):
            out[...] = before
            tensor.add_transposed(out, src, axes)
            np.testing.assert_allclose(out, before + src.transpose(axes), 1e-6)


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64"])
@pytest.mark.parametrize(("shape", "axes"), LARGE)
def test_large_arrays_tile_by_tile(dtype, shape, axes):
    src = data(shape, dtype)
    out = np.zeros(tuple(shape[a] for a in axes), dtype)
    run = tensor.transpose.bind(out, src, axes)
    run()
    np.testing.assert_array_equal(out, src.transpose(axes))
    src[...] = data(shape, dtype, seed=1)
    run()
    np.testing.assert_array_equal(out, src.transpose(axes))
    if dtype in ("float32", "float64"):
        tensor.add_transposed(out, src, axes)
        np.testing.assert_array_equal(out, src.transpose(axes) + src.transpose(axes))


def test_large_parts_of_larger_arrays():
    whole, wide = data((1500, 600)), np.zeros((600, 1400), np.float32)
    tensor.transpose(wide[7:551, 3:], whole[:1397, 20:564], (1, 0))
    np.testing.assert_array_equal(wide[7:551, 3:], whole[:1397, 20:564].T)
    assert not wide[:7].any()
    assert not wide[551:].any()
    assert not wide[:, :3].any()


def test_joining_converts_and_splitting_adds_to_one_array_many_times():
    out = np.empty((2, 5))
    parts = [np.ones((2, 2), np.int32), np.full((2, 3), 2.5, np.float32)]
    tensor.concatenate(out, parts, 1)
    np.testing.assert_array_equal(out, [[1, 1, 2.5, 2.5, 2.5]] * 2)
    total = np.zeros((2, 1))
    tensor.add_split(out, [total] * 5, 1)
    np.testing.assert_array_equal(total, [[9.5]] * 2)
