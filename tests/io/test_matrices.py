"""Compressed, sparse and general matrices and posteriors."""

import io
import struct

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.general_matrix import (
    CompressedMatrix,
    CompressionMethod,
    SparseMatrix,
    append_rows,
    compress,
    filter_rows,
    read_general_matrix,
    row_range,
    scale,
    to_dense,
    write_general_matrix,
)
from nnet3tools.io.posterior import Posterior, read_posterior, write_posterior
from nnet3tools.io.stream import Reader
from support.streams import Trickle, bytes_of, random_posterior, random_sparse

METHODS = list(CompressionMethod)


def encode(matrix, binary: bool = True) -> bytes:
    return bytes_of(write_general_matrix, matrix, binary=binary)


def decode(data: bytes, binary: bool = True, trickle: int = 0):
    return read_general_matrix(
        Reader(Trickle(data, trickle) if trickle else io.BytesIO(data), "x", binary)
    )


# -- compressed


def scalar_compress(matrix: np.ndarray, method: int) -> bytes:
    """Compress like compressed-matrix.cc, with loops and its types (float32 unless noted)."""
    f32 = np.float32
    rows, cols = matrix.shape
    if method == 1:
        method = 2 if rows > 8 else 3
    low, high = matrix.min(), matrix.max()
    if low == high:
        high = f32(float(low) + (1.0 + abs(float(low))))
    extent = f32(high - low)
    low, extent = {4: (-32768, 65535), 6: (0, 255), 7: (0, 1)}.get(method, (low, extent))
    low, extent = f32(low), f32(extent)

    def quantize(value, steps):
        f = min(max(f32(f32(value - low) / extent), f32(0)), f32(1))
        return int(float(f32(f * f32(steps))) + 0.499)

    def dequantize(value):
        return f32(low + f32(f32(extent * f32(1.52590218966964e-05)) * f32(value)))

    token = {2: b"CM ", 3: b"CM2 ", 4: b"CM2 "}.get(method, b"CM3 ")
    out = token + struct.pack("<ffii", low, extent, rows, cols)
    if token == b"CM2 ":
        return out + b"".join(struct.pack("<H", quantize(v, 65535)) for v in matrix.ravel())
    if token == b"CM3 ":
        return out + bytes(quantize(v, 255) for v in matrix.ravel())
    heads, data = b"", b""
    for column in matrix.T:
        ordered = sorted(column)
        quarter = rows // 4
        at = [0, quarter, 3 * quarter, rows - 1] if rows >= 5 else list(range(rows))
        codes: list[int] = []
        for i in range(4):
            code = quantize(ordered[at[i]], 65535) if i < len(at) else 0
            code = max(code, codes[-1] + 1) if codes else code
            codes.append(min(code, 65532 + i))
        heads += struct.pack("<4H", *codes)
        p = [dequantize(code) for code in codes]
        for value in column:
            i, first, steps = (0, 0, 64) if value < p[1] else (1, 64, 128)
            if value >= p[1] and not value < p[2]:
                i, first, steps = 2, 192, 63
            with np.errstate(all="ignore"):
                f = f32(f32(value - p[i]) / f32(p[i + 1] - p[i]))
            step = int(float(f32(f * f32(steps))) + 0.5) if np.isfinite(f) else -(1 << 31)
            data += bytes([first + min(max(step, 0), steps)])
    return out + heads + data


def awkward_matrices() -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    shapes = [(1, 1), (2, 3), (3, 2), (4, 5), (5, 4), (8, 3), (9, 3), (40, 6), (101, 7)]
    matrices = [rng.normal(size=shape) * 10 ** rng.uniform(-2, 3) for shape in shapes]
    matrices += [np.full((12, 2), 3.5), np.zeros((3, 3)), np.full((10, 1), -1.0)]
    mixed = rng.normal(size=(20, 4))
    mixed[:, 1] = 0.25
    mixed[:, 2] = mixed.max()
    mixed[:, 3] = mixed.min()
    matrices += [1e6 + rng.uniform(0, 0.2, (15, 3)), 1e8 + rng.integers(0, 3, (15, 2)) * 8.0]
    matrices += [mixed, np.round(rng.uniform(0, 255, (30, 4))), rng.uniform(0, 1, (11, 3))]
    return [matrix.astype(np.float32) for matrix in matrices]


@pytest.mark.parametrize("method", METHODS)
def test_compressed_bytes_are_what_the_definition_gives(method: CompressionMethod) -> None:
    for matrix in awkward_matrices():
        compressed = CompressedMatrix.from_dense(matrix, method)
        data = encode(compressed)
        assert data == scalar_compress(matrix, method)
        again = decode(data, trickle=100)
        assert isinstance(again, CompressedMatrix)
        assert encode(again) == data
        dense = again.to_dense()
        assert dense.dtype == np.float32
        np.testing.assert_array_equal(dense, compressed.to_dense())
        np.testing.assert_array_equal(Reader(io.BytesIO(data), "x", True).read_matrix(), dense)


@pytest.mark.parametrize("method", [1, 2, 3, 5])
def test_compression_is_close(method: int) -> None:
    matrix = np.random.default_rng(0).normal(size=(200, 10)).astype(np.float32)
    dense = CompressedMatrix.from_dense(matrix, CompressionMethod(method)).to_dense()
    assert np.abs(dense - matrix).max() < 0.1


def test_integers_survive_their_methods_exactly() -> None:
    bytes_ = np.arange(256, dtype=np.float32).reshape(16, 16)
    for matrix, method in [
        (bytes_, CompressionMethod.ONE_BYTE_UNSIGNED_INTEGER),
        (bytes_ * 257 - 32768, CompressionMethod.TWO_BYTE_SIGNED_INTEGER),
    ]:
        np.testing.assert_array_equal(
            CompressedMatrix.from_dense(matrix, method).to_dense(), matrix
        )


def test_percentile_decoding_by_hand() -> None:
    """Expected values: p0 + (p25 - p0) * code / 64 etc. for percentiles 0, 1/4, 3/4, 1."""
    codes = np.array([[0, 32, 64, 128, 192, 255]], np.uint8)
    percentiles = np.array([[0, 16384, 49151, 65535]], np.uint16)
    dense = CompressedMatrix(1, 0.0, 65535.0, 6, 1, percentiles, codes).to_dense()
    expected = np.array([0, 8192, 16384, 32767.5, 49151, 65535])
    np.testing.assert_allclose(dense[:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("method", [2, 3, 5])
def test_blocks_are_the_blocks_of_the_matrix(method: int) -> None:
    matrix = np.random.default_rng(2).normal(size=(30, 6)).astype(np.float32)
    compressed = CompressedMatrix.from_dense(matrix, CompressionMethod(method))
    dense = compressed.to_dense()
    for first, count in [(0, 30), (3, 10), (-4, 12), (25, 9), (-20, 60), (4, 3), (-3, 5)]:
        part = row_range(compressed, first, count)
        rows = np.arange(first, first + count).clip(0, 29)
        tolerance = 1e-4 if method == 2 and count < 8 else 0
        np.testing.assert_allclose(to_dense(part), dense[rows], atol=tolerance)
        assert part.format == (2 if method == 2 and count < 8 else compressed.format)
    np.testing.assert_allclose(to_dense(scale(compressed, -2.0)), dense * -2, atol=1e-5)


def test_compressed_text_is_a_full_matrix() -> None:
    compressed = CompressedMatrix.from_dense(np.float32([[1, 2], [3, 4]]))
    assert encode(compressed, binary=False).startswith(b" [\n  1 2 \n  3 4 ]\n"[:6])
    np.testing.assert_allclose(decode(encode(compressed, False), False), compressed.to_dense())


def test_what_cannot_be_compressed() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match="cannot compress"):
            compress(np.float32([[1, bad]]))
    assert compress(np.empty((0, 0), np.float32)).shape == (0, 0)


def test_empty_compressed_matrix_reads_as_empty() -> None:
    data = b"CM " + struct.pack("<ffii", 0, 0, 0, 0)
    assert decode(data).shape == (0, 0)
    assert encode(decode(data)) == b"FM \4\0\0\0\0\4\0\0\0\0"


# -- sparse


@pytest.mark.parametrize("trickle", [0, 1, 17, 1000])
@pytest.mark.parametrize("binary", [False, True])
def test_sparse_comes_back(binary: bool, trickle: int) -> None:
    rng = np.random.default_rng(8)
    even = SparseMatrix.from_counts([2] * 30, [1, 3] * 30, rng.normal(size=60), 4)
    empty_rows = SparseMatrix.from_counts([0] * 5, [], [], 4)
    random = [random_sparse(rng, rows, cols) for rows, cols in [(1, 1), (3, 10), (500, 40)]]
    for matrix in [even, empty_rows, *random]:
        data = encode(matrix, binary) + (b"\4\1\0\0\0\4\0\0\0\0" if binary else b"")
        again = decode(data, binary, trickle)
        assert isinstance(again, SparseMatrix)
        np.testing.assert_array_equal(again.row_offsets, matrix.row_offsets)
        np.testing.assert_array_equal(again.indices, matrix.indices)
        np.testing.assert_allclose(again.values, matrix.values, rtol=0 if binary else 1e-6)
        assert again.shape == matrix.shape


def test_sparse_leaves_what_follows() -> None:
    matrix = random_sparse(np.random.default_rng(1), 5, 9)
    reader = Reader(io.BytesIO(encode(matrix) + b"\4\7\0\0\0\4\1\2\3\4" * 3), "x", True)
    read_general_matrix(reader)
    assert reader.read_int32() == 7
    reader = Reader(io.BytesIO(encode(matrix, False) + b"<next> "), "x", False)
    read_general_matrix(reader)
    assert reader.read_token() == "<next>"


def test_sparse_bytes_are_kaldis() -> None:
    matrix = SparseMatrix.from_counts([1, 0], [2], [0.5], 3)
    integer = lambda value: struct.pack("<bi", 4, value)  # noqa: E731
    assert encode(matrix) == (
        b"SM " + integer(2) + b"SV " + integer(3) + integer(1) + integer(2)
        + struct.pack("<bf", 4, 0.5) + b"SV " + integer(3) + integer(0)
    )  # fmt: skip
    assert encode(matrix, False) == b"rows=2 dim=3 [ 2 0.5 ] dim=3 [ ] \n"


def test_sparse_of_doubles_is_read() -> None:
    integer = lambda value: struct.pack("<bi", 4, value)  # noqa: E731
    data = b"SM " + integer(1) + b"SV " + integer(3) + integer(1) + integer(2)
    matrix = decode(data + struct.pack("<bd", 8, 0.1))
    np.testing.assert_array_equal(matrix.to_dense(), np.float32([[0, 0, 0.1]]))


@pytest.mark.parametrize(
    ("data", "binary"),
    [
        (b"SM \4\1\0\0\0SV \4\3\0\0\0\4\1\0\0\0", True),
        (b"SM \4\1\0\0\0SV \4\3\0\0\0\4\1\0\0\0\4\5\0\0\0\4\0\0\0\0", True),
        (b"SM \4\1\0\0\0SV \4\3\0\0\0\4\2\0\0\0\4\1\0\0\0\4\0\0\0\0<x> " * 5, True),
        (b"SM \4\2\0\0\0SV \4\3\0\0\0\4\0\0\0\0SV \4\4\0\0\0\4\0\0\0\0", True),
        (b"SM \4\1\0\0\0garbage", True),
        (b"SM \4\xff\xff\xff\xff", True),
        (b"SM \4\xff\xff\xff\x7f", True),
        (b"rows=2 dim=3 [ ] ", False),
        (b"rows=1 dim=3 [ 1 ] ", False),
        (b"rows=1 dim=3 [ 7 1 ] ", False),
        (b"rows=1 dim=3 [ a 1 ] ", False),
        (b"rows=1 foo=3 [ 1 1 ] ", False),
        (b"rows=1 dim=2147483648 [ ] ", False),
        (b"rows=1 dim=" + b"8" * 400 + b" [ ] ", False),
        (b"rows=2 dim=3 [ ] dim=4 [ ] ", False),
    ],
)
@pytest.mark.parametrize("trickle", [0, 4])
def test_bad_sparse(data: bytes, binary: bool, trickle: int) -> None:
    with pytest.raises(DataError, match=r"^x: byte ") as caught:
        decode(data, binary, trickle)
    assert "\n" not in str(caught.value)


def test_sparse_operations() -> None:
    rng = np.random.default_rng(3)
    a, b = random_sparse(rng, 7, 5), random_sparse(rng, 4, 5)
    dense = a.to_dense()
    np.testing.assert_array_equal(SparseMatrix.from_dense(dense).to_dense(), dense)
    rows = np.array([3, 3, 0, 6])
    np.testing.assert_array_equal(a.select_rows(rows).to_dense(), dense[rows])
    padded = row_range(a, -2, 12)
    np.testing.assert_array_equal(to_dense(padded), dense[np.arange(-2, 10).clip(0, 6)])
    both = append_rows([a, np.empty((0, 0), "f4"), b])
    assert isinstance(both, SparseMatrix)
    np.testing.assert_array_equal(to_dense(both), np.concatenate([dense, b.to_dense()]))
    mixed = append_rows([a, b.to_dense()])
    np.testing.assert_array_equal(mixed, to_dense(both))
    keep = np.array([1, 0, 1, 0, 0, 0, 1], bool)
    np.testing.assert_array_equal(to_dense(filter_rows(a, keep)), dense[keep])
    np.testing.assert_array_equal(filter_rows(dense, keep), dense[keep])
    assert filter_rows(a, np.ones(7, bool)) is a
    np.testing.assert_array_equal(to_dense(scale(a, 2.0)), dense * 2)
    np.testing.assert_array_equal(row_range(dense, 5, 4), dense[[5, 6, 6, 6]])
    for bad in (np.zeros((1, 6), "f4"), random_sparse(rng, 2, 6)):
        with pytest.raises(DataError, match="cannot append"):
            append_rows([a, bad])
    assert append_rows([]).shape == (0, 0)


# -- posteriors


@pytest.mark.parametrize("trickle", [0, 3])
@pytest.mark.parametrize("binary", [False, True])
def test_posteriors_come_back(binary: bool, trickle: int) -> None:
    rng = np.random.default_rng(9)
    for posterior in [
        random_posterior(rng, 0, 1),
        random_posterior(rng, 200, 3),
        Posterior.from_counts(np.ones(3000, int), rng.integers(0, 9, 3000), np.ones(3000)),
    ]:
        data = bytes_of(write_posterior, posterior, binary=binary) + b"next "
        reader = Reader(Trickle(data, trickle) if trickle else io.BytesIO(data), "x", binary)
        again = read_posterior(reader)
        np.testing.assert_array_equal(again.offsets, posterior.offsets)
        np.testing.assert_array_equal(again.pdfs, posterior.pdfs)
        np.testing.assert_allclose(again.weights, posterior.weights, rtol=0 if binary else 1e-6)
        assert reader.read_token() == "next"


def test_posterior_forms_are_kaldis() -> None:
    posterior = Posterior.from_counts([2, 0], [7, 1], [0.25, 0.75])
    text = bytes_of(write_posterior, posterior, binary=False)
    assert text == b"[ 7 0.25 1 0.75 ] [ ] \n"
    integer = lambda value: struct.pack("<bi", 4, value)  # noqa: E731
    real = lambda value: struct.pack("<bf", 4, value)  # noqa: E731
    one, other = integer(7) + real(0.25), integer(1) + real(0.75)
    binary = integer(2) + integer(2) + one + other + integer(0)
    assert bytes_of(write_posterior, posterior) == binary


def test_posterior_to_sparse_sorts_and_adds() -> None:
    posterior = Posterior.from_counts([3, 0, 1], [7, 1, 7, 2], [0.25, 0.5, 0.25, 0.0])
    sparse = posterior.to_sparse(8)
    np.testing.assert_array_equal(sparse.row_offsets, [0, 2, 2, 2])
    np.testing.assert_array_equal(sparse.indices, [1, 7])
    np.testing.assert_array_equal(sparse.values, np.float32([0.5, 0.5]))
    with pytest.raises(DataError, match="pdf 7 of a posterior is not below 7"):
        posterior.to_sparse(7)


@pytest.mark.parametrize(
    ("data", "binary"),
    [
        (b"1 2 3\n", False),
        (b"[ 1 0.5 ] [ 2\n", False),
        (b"[ 1 ] \n", False),
        (b"[ 1.5 2 ] \n", False),
        (b"[ x 2 ] \n", False),
        (b"", False),
        (b"\4\1\0\0\0", True),
        (b"\4\xff\xff\xff\xff", True),
        (b"\4\1\0\0\0\4\xff\xff\xff\xff", True),
        (b"\4\1\0\0\0\4\xff\xff\xff\x0f\4\0\0\0\0", True),
        (b"\4\1\0\0\0\4\1\0\0\0\4\1\0\0\0\5\0\0\0\0", True),
    ],
)
def test_bad_posteriors(data: bytes, binary: bool) -> None:
    with pytest.raises(DataError, match=r"^x: byte "):
        read_posterior(Reader(io.BytesIO(data), "x", binary))
