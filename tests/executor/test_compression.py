"""The operators behind CompressMatrix and DecompressMatrix."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor.operators.compress import compress, decompress
from support.row_operators import reference

TYPES = ("int8", "uint8", "int16", "uint16")


@pytest.mark.parametrize("value_range", [0.0, 1.0, 0.3])
@pytest.mark.parametrize("dtype", TYPES)
def test_backend_agrees_with_the_declaration(dtype, value_range):
    x = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    x[0, 0], x[0, 1] = 0.0, -0.0
    got, expected = np.empty((7, 5), dtype), np.empty((7, 5), dtype)
    compress(got, x, value_range)
    reference(compress)(expected, x, value_range)
    np.testing.assert_allclose(got.astype(int), expected.astype(int), atol=1 if value_range else 0)
    back, expected_back = np.empty_like(x), np.empty_like(x)
    decompress(back, got, value_range)
    reference(decompress)(expected_back, got, value_range)
    np.testing.assert_allclose(back, expected_back, rtol=1e-6)


def test_signs_of_a_relu_survive():
    x = np.maximum(np.random.default_rng(1).normal(size=(20, 3)), 0).astype(np.float32)
    small, back = np.empty(x.shape, np.uint8), np.empty_like(x)
    compress(small, x, 0.0)
    decompress(back, small, 0.0)
    np.testing.assert_array_equal(back, (x > 0).astype(np.float32))


def test_compressed_views_of_the_arena():
    x = np.random.default_rng(1).uniform(0, 1, size=(4, 6)).astype(np.float32)[:, ::2]
    buffer = tensor.empty(100, dtype=np.uint8)
    small = buffer[8:20].reshape(4, 3)
    compress(small, x, 1.0)
    back = np.empty((4, 3), np.float32)
    decompress(back, small, 1.0)
    assert np.abs(back - x).max() <= 0.51 / 255
