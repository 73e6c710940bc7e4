"""Compressed matrices decompressed by compiled code: the bits of the NumPy code."""

import struct

import numpy as np
import pytest

from nnet3tools.io.compressed import CompressedMatrix, CompressionMethod, compress_all
from nnet3tools.tensor.cpu import choice
from nnet3tools.tensor.operators.compress.kaldi import decompress
from support.native_kernels import needs_compiler

pytestmark = needs_compiler

METHODS = {
    "CM": CompressionMethod.SPEECH_FEATURE,
    "CM2": CompressionMethod.TWO_BYTE_AUTO,
    "CM3": CompressionMethod.ONE_BYTE_AUTO,
}


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels, whatever the other tests use."""
    monkeypatch.setattr(choice, "_chosen", choice.CpuKernels.NATIVE)


def in_bytes(matrices: list[CompressedMatrix]) -> tuple[bytes, np.ndarray]:
    """Matrices at odd places among other bytes, and where they begin."""
    data, starts = b"x", []
    for i, matrix in enumerate(matrices):
        starts.append(len(data))
        data += struct.pack("<ffii", matrix.min_value, matrix.range, *matrix.shape)
        data += matrix.percentiles.tobytes() + matrix.data.tobytes() + b"y" * (i % 4)
    return data, np.array(starts, np.int64)


@pytest.mark.parametrize("shape", [(1, 1), (28, 40), (300, 3), (7, 65)])
@pytest.mark.parametrize("token", METHODS)
def test_the_bits_of_numpy(token, shape) -> None:
    rng = np.random.default_rng(3)
    values = (rng.standard_normal((9, *shape)) * 10 ** rng.uniform(-3, 4, (9, 1, 1))).astype("f4")
    values[3] = 1.5  # no range
    matrices = compress_all(values, METHODS[token])
    weights = rng.uniform(-2, 2, 9).astype(np.float32)
    data, starts = in_bytes(matrices)
    expected = np.stack([matrix.to_dense() for matrix in matrices])
    assert np.array_equal(decompress(token, data, starts, shape), expected)
    scaled = np.stack(
        [matrix.scaled(weight).to_dense() for matrix, weight in zip(matrices, weights, strict=True)]
    )
    assert np.array_equal(decompress(token, data, starts, shape, weights), scaled)


def test_all_codes_between_any_percentiles() -> None:
    rng = np.random.default_rng(4)
    codes = np.tile(np.arange(256, dtype=np.uint8), (5, 1))
    percentiles = rng.integers(0, 65536, (5, 4), dtype=np.uint16)  # not in order, too
    matrix = CompressedMatrix(1, -3.0, 1e4, 256, 5, percentiles, codes)
    data, starts = in_bytes([matrix])
    assert np.array_equal(decompress("CM", data, starts, (256, 5))[0], matrix.to_dense())


def test_no_compiled_code_where_numpy_is_asked_for() -> None:
    choice.choose("numpy")
    assert decompress("CM3", b"\0" * 17, np.zeros(1, np.int64), (1, 1)) is None
