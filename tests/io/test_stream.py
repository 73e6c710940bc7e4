"""Streams: every basic type, vector and matrix, in text and binary, and all malformed forms."""

import io
import struct

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.stream import Reader, Writer
from support.streams import Trickle


def data_of(binary: bool, *calls: tuple) -> bytes:
    out = io.BytesIO()
    writer = Writer(out, binary)
    for method, *arguments in calls:
        getattr(writer, f"write_{method}")(*arguments)
    assert writer.offset == len(out.getvalue())
    return out.getvalue()


def reader_of(data: bytes, binary: bool, trickle: bool = False) -> Reader:
    return Reader(Trickle(data) if trickle else io.BytesIO(data), "x", binary)


@pytest.mark.parametrize("trickle", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_basic_types_come_back(binary: bool, trickle: bool) -> None:
    data = data_of(
        binary,
        ("token", "<A>"),
        ("bool", True),
        ("bool", False),
        ("int32", -5),
        ("size", 1 << 40),
        ("float", 0.1),
        ("double", 0.25),
        ("int32_vector", [1, -2, 3]),
        ("int32_vector", []),
        ("int_pairs", [[1, 2], [3, -4]]),
        ("token", "</A>"),
    )
    r = reader_of(data, binary, trickle)
    assert r.peek_token() == "<A>"
    r.expect_token("<A>")
    assert (r.read_bool(), r.read_bool()) == (True, False)
    assert r.read_int32() == -5
    assert r.read_size() == 1 << 40
    assert r.read_float() == np.float32(0.1)
    assert r.read_double() == 0.25
    np.testing.assert_array_equal(r.read_int32_vector(), [1, -2, 3])
    assert r.read_int32_vector().shape == (0,)
    np.testing.assert_array_equal(r.read_int_pairs(), [[1, 2], [3, -4]])
    r.expect_token("</A>")
    assert r.at_end()
    assert r.peek_token() == ""


def test_text_and_binary_bytes_are_kaldis() -> None:
    assert data_of(True, ("int32", 3), ("bool", True)) == b"\4\3\0\0\0T"
    assert data_of(True, ("size", 3)) == b"\xf8\3\0\0\0\0\0\0\0"
    assert data_of(False, ("int32", 3), ("bool", True), ("float", 1e-5)) == b"3 T 1e-05 "
    assert data_of(False, ("int32_vector", [1, 2])) == b"[ 1 2 ]\n"
    assert data_of(True, ("int32_vector", [7])) == b"\4\1\0\0\0\7\0\0\0"
    assert data_of(False, ("int_pairs", [[1, 2]])) == b"[ 1,2 ]\n"
    vector = np.array([0.1, -2, 1e10, np.inf, -np.inf, np.nan, -0.0], np.float32)
    assert data_of(False, ("vector", vector)) == b" [ 0.1 -2 1e+10 inf -inf nan -0 ]\n"
    assert data_of(False, ("vector", np.copysign(np.float32([np.nan]), -1))) == b" [ -nan ]\n"
    assert data_of(False, ("vector", vector[:0])) == b" [ ]\n"
    matrix = np.array([[1, 2], [3, 4.5]])
    assert data_of(False, ("matrix", matrix)) == b" [\n  1 2 \n  3 4.5 ]\n"
    assert data_of(False, ("matrix", matrix[:0, :0])) == b" [ ]\n"
    binary = b"DM \4\2\0\0\0\4\2\0\0\0" + matrix.tobytes()
    assert data_of(True, ("matrix", matrix)) == binary
    assert data_of(True, ("vector", np.float32([2]))) == b"FV \4\1\0\0\0" + struct.pack("<f", 2)


@pytest.mark.parametrize("trickle", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("binary", [False, True])
def test_matrices_and_vectors_come_back(binary: bool, dtype: type, trickle: bool) -> None:
    rng = np.random.default_rng(1)
    for shape in [(0, 0), (1, 1), (3, 5), (70, 11)]:
        matrix = rng.normal(size=shape).astype(np.float32).astype(dtype)
        strided = np.asfortranarray(matrix)
        data = data_of(binary, ("matrix", strided), ("vector", matrix.ravel()), ("token", "<end>"))
        r = reader_of(data, binary, trickle)
        back = r.read_matrix(dtype)
        vector = r.read_vector(dtype)
        r.expect_token("<end>")
        assert back.dtype == dtype
        assert back.flags.c_contiguous
        assert back.flags.writeable
        tolerance = 0 if binary else 1e-6
        np.testing.assert_allclose(back, matrix, rtol=tolerance)
        np.testing.assert_allclose(vector, matrix.ravel(), rtol=tolerance)


def test_doubles_read_as_floats_and_back() -> None:
    data = data_of(True, ("matrix", np.ones((2, 2))), ("vector", np.ones(3)), ("double", 0.1))
    r = reader_of(data, True)
    assert r.read_matrix().dtype == np.float32
    assert r.read_vector().dtype == np.float32
    assert r.read_float() == np.float32(0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[ 1 2 ; 3 4 ]", [[1, 2], [3, 4]]),
        (b" [\r\n 1 2\r\n 3 4 ]\r\n", [[1, 2], [3, 4]]),
        (b"[ 1 2\n\n3 4\n]\n", [[1, 2], [3, 4]]),
        (b"[1 2\n3 4]", [[1, 2], [3, 4]]),
        (b" [ ]\n", np.empty((0, 0))),
        (b"[]", np.empty((0, 0))),
        (b"[ nan INF -inf infinity ]", [[np.nan, np.inf, -np.inf, np.inf]]),
    ],
)
def test_tolerated_text_matrices(text: bytes, expected: object) -> None:
    np.testing.assert_array_equal(reader_of(text, False).read_matrix(), np.asarray(expected))


@pytest.mark.parametrize(
    ("data", "binary", "method", "message"),
    [
        (b"", True, "read_token", "byte 0: expected a token, found the end of the stream"),
        (b"abc", True, "read_token", "expected a token"),
        (b"\5", True, "read_int32", "expected an int32 \\(size byte 4\\), found 5"),
        (b"\4\1", True, "read_int32", "expected an int32, found the end of the stream"),
        (b"\xf8" + b"\xff" * 8, True, "read_size", "expected a count, found -1"),
        (b"x1 ", False, "read_int32", "expected an int32, found 'x1 '"),
        (b"3000000000 ", False, "read_int32", "expected an int32"),
        (b"1.5 ", False, "read_int32", "expected an int32"),
        (b"\3", True, "read_float", "size byte 4 or 8"),
        (b"abc ", False, "read_float", "expected a number"),
        (b"X", True, "read_bool", "expected T or F"),
        (b"\4\xff\xff\xff\xff", True, "read_int32_vector", "one of -1 elements"),
        (b"\4\xff\xff\xff\x7f", True, "read_int32_vector", "2147483647 elements"),
        (b"[ 1 2", False, "read_int32_vector", "before its ']'"),
        (b"[ 1 x ]", False, "read_int32_vector", "x"),
        (b"[ 1,2 3 ]", False, "read_int_pairs", "pairs"),
        (b"FV \4\xff\xff\xff\x7f", True, "read_vector", "8589934588 bytes\\), found 0 bytes"),
        (b"FV \4\xff\xff\xff\xff", True, "read_vector", "one of -1"),
        (b"[ 1 2\n 3 ]\n", False, "read_vector", "newline"),
        (b"FM \4\xff\xff\xff\x7f\4\xff\xff\xff\x7f1234", True, "read_matrix", "2147483647 x"),
        (b"CM \0\0\0\0\0\0\0\0\xff\xff\xff\x7f\xff\xff\xff\x7f", True, "read_matrix", "2147483647"),
        (b"XX ", True, "read_matrix", "expected a matrix .* found 'XX'"),
        (b"[ 1 2\n 3 ]", False, "read_matrix", "row 1 has 1 numbers, row 0 has 2"),
        (b"[ 1 2\n 3 4", False, "read_matrix", "before its ']'"),
        (b"[ 1 ab ]", False, "read_matrix", "ab"),
        (b"hello", False, "read_matrix", "expected a matrix"),
        (b"[ 1 " + b"9" * 20 + b" ]", False, "read_int32_vector", "expected a number, found '9999"),
        (b"[ " + b"9" * 5000 + b" ]", False, "read_int32_vector", "expected a number, found '9999"),
        (b"9" * 5000 + b" ", False, "read_int32", "expected an int32"),
    ],
)
@pytest.mark.parametrize("trickle", [False, True])
def test_bad_input_is_one_clear_line(
    data: bytes, binary: bool, method: str, message: str, trickle: bool
) -> None:
    if trickle and "found 0 bytes" in message:
        message = "found the end of the stream"
    reader = reader_of(data, binary, trickle)
    reader.key = "utt1"
    with pytest.raises(DataError, match=message) as caught:
        getattr(reader, method)()
    assert str(caught.value).startswith("x: key 'utt1': byte ")
    assert "\n" not in str(caught.value)


def test_wrong_token_names_offset_found_and_expected() -> None:
    r = reader_of(b"<A> <B> ", True)
    with pytest.raises(DataError, match="x: byte 4: expected <C>, found '<B>'"):
        r.expect_token("<A>", "<C>")


def test_header_decides_the_mode() -> None:
    r = reader_of(b"\0BFV \4\0\0\0\0", False)
    r.read_header()
    assert r.binary
    assert r.read_vector().size == 0
    r = reader_of(b"[ 1 ]", True)
    r.read_header()
    assert not r.binary
    with pytest.raises(DataError, match="header"):
        reader_of(b"\0Cxx", False).read_header()


def test_lines() -> None:
    r = reader_of(b"a b\n\nlast", False, trickle=True)
    assert [r.read_line() for _ in range(3)] == ["a b", "", "last"]
    with pytest.raises(DataError, match="end of the stream"):
        r.read_line()


def test_seek_within_and_beyond_the_buffer() -> None:
    data = bytes(range(256)) * 1000
    r = reader_of(data, True)
    for offset in (5, 100, 200_000, 3):
        r.seek(offset)
        assert r.peek_byte() == data[offset]
        assert r.offset == offset


def test_big_matrix_from_a_stream_of_unknown_length() -> None:
    matrix = np.arange(3000, dtype=np.float32).reshape(30, 100)
    r = Reader(Trickle(data_of(True, ("matrix", matrix), ("token", "x")), 999), "x", True)
    np.testing.assert_array_equal(r.read_matrix(), matrix)
    assert r.read_token() == "x"
