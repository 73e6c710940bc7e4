"""Index vectors compared with a reader and writer of single elements."""

import io
import struct

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.index_vector import (
    read_cindex_vector,
    read_index_vector,
    write_cindex_vector,
    write_index_vector,
)
from nnet3tools.io.stream import Reader, Writer
from support.streams import Trickle

NO_TIME = np.iinfo(np.int32).min


def integer(value: int) -> bytes:
    return struct.pack("<bi", 4, value)


def reference_bytes(rows: list[tuple[int, int, int]], nodes: list[int] | None) -> bytes:
    """Write the format of nnet-common.cc with a loop over elements, as a reference."""
    out = b""
    for i, (n, t, x) in enumerate(rows):
        if nodes is not None and (i == 0 or nodes[i] != nodes[i - 1]):
            out += b"|" + integer(nodes[i])
        last = rows[i - 1] if i else (0, 0, 0)
        limit = 125 if nodes is None or i == 0 else 124
        if n == last[0] and x == last[2] and abs(t - last[1]) < limit:
            out += struct.pack("b", t - last[1])
        elif nodes is not None and t == last[1] and x == last[2] and n - last[0] in (0, 1):
            out += bytes([125 + n - last[0]])
        else:
            out += b"\x7f" + integer(n) + integer(t) + integer(x)
    return out


def random_rows(rng: np.random.Generator, size: int) -> np.ndarray:
    """Random rows: runs in t, steps in n, jumps, negative or missing times, bytes 124 to 127."""
    step = rng.choice([0, 1, -1, 3, 123, 124, 125, -124, -125, 127, 1000, 1 << 20], size)
    t = np.cumsum(step)
    n = np.cumsum(rng.choice([0, 0, 0, 1, 1, 2], size))
    x = rng.choice([0, 0, 0, 0, 1, 124, 127], size)
    rows = np.stack([n, t, x], 1).astype(np.int32)
    rows[rng.random(size) < 0.03, 1] = NO_TIME
    return rows


@pytest.mark.parametrize("trickle", [None, 1, 7, 100])
@pytest.mark.parametrize("with_nodes", [False, True])
def test_binary_form_matches_the_definition_and_comes_back(with_nodes, trickle) -> None:
    rng = np.random.default_rng(3)
    for size in [0, 1, 2, 5, 40, 700]:
        rows = random_rows(rng, size)
        if size == 5:
            rows = np.stack([np.zeros(5), [-124, -120, 4, 3, 100], np.zeros(5)], 1).astype("i4")
        nodes = np.sort(rng.choice([0, 1, 124, 127], size)).astype(np.int32)
        out = io.BytesIO()
        writer = Writer(out, True)
        if with_nodes:
            write_cindex_vector(writer, nodes, rows)
        else:
            write_index_vector(writer, rows)
        expected = reference_bytes(
            [tuple(map(int, row)) for row in rows], list(nodes) if with_nodes else None
        )
        assert out.getvalue() == b"<I1V> " + integer(size) + expected
        data = out.getvalue() + b"<end> "
        reader = Reader(Trickle(data, trickle) if trickle else io.BytesIO(data), "x", True)
        if with_nodes:
            back_nodes, back = read_cindex_vector(reader)
            np.testing.assert_array_equal(back_nodes, nodes)
        else:
            back = read_index_vector(reader)
        np.testing.assert_array_equal(back, rows)
        assert back.dtype == np.int32
        assert back.shape == (size, 3)
        reader.expect_token("<end>")


@pytest.mark.parametrize("trickle", [None, 5])
@pytest.mark.parametrize("with_nodes", [False, True])
def test_text_form_comes_back(with_nodes, trickle) -> None:
    rng = np.random.default_rng(4)
    for size in [0, 1, 300]:
        rows = random_rows(rng, size)
        nodes = np.sort(rng.choice(4, size)).astype(np.int32)
        out = io.BytesIO()
        writer = Writer(out, False)
        if with_nodes:
            write_cindex_vector(writer, nodes, rows)
        else:
            write_index_vector(writer, rows)
        writer.write_text("<I1> 1 2 3 <end> ")
        data = out.getvalue()
        reader = Reader(Trickle(data, trickle) if trickle else io.BytesIO(data), "x", False)
        if with_nodes:
            back_nodes, back = read_cindex_vector(reader)
            np.testing.assert_array_equal(back_nodes, nodes)
        else:
            back = read_index_vector(reader)
        np.testing.assert_array_equal(back, rows)
        assert [reader.read_token() for _ in range(5)] == ["<I1>", "1", "2", "3", "<end>"]


def test_text_spacing_is_kaldis() -> None:
    out = io.BytesIO()
    writer = Writer(out, False)
    rows = np.array([[0, 1, 0], [0, 2, 0], [1, 0, 0]], np.int32)
    write_index_vector(writer, rows[:2])
    write_cindex_vector(writer, np.array([4, 4, 5], np.int32), rows)
    assert out.getvalue() == (
        b"<I1V> 2 <I1> 0 1 0 <I1> 0 2 0 <I1V> 3 [4 :<I1> 0 1 0 <I1> 0 2 0 ][5 :<I1> 1 0 0 ]"
    )


@pytest.mark.parametrize(
    ("data", "binary", "message"),
    [
        (b"<I1V> " + integer(-1), True, "one of -1"),
        (b"<I1V> " + integer(1 << 30) + b"\0\1", True, "end of the stream after 2"),
        (b"<I1V> " + integer(2) + b"\0\x80", True, "unexpected byte -128"),
        (b"<I1V> " + integer(1) + b"\x7f\4\0\0\0\0\5\0\0\0\0\4\0\0\0\0", True, "32-bit"),
        (b"<I1V> " + integer(1) + b"\x7f\4\0", True, "end of the stream"),
        (b"<I1V> 2 <I1> 0 0 0 </end>", False, "1 more indexes"),
        (b"<I2V> 2 ", False, "expected <I1V>"),
    ],
)
def test_bad_vectors(data: bytes, binary: bool, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_index_vector(Reader(io.BytesIO(data), "x", binary))


@pytest.mark.parametrize(
    ("data", "binary", "message"),
    [
        (b"<I1V> " + integer(1) + b"\0", True, "expected '\\|'"),
        (b"<I1V> 2 [1 :<I1> 0 0 0 ]", False, "expected a group"),
        (b"<I1V> 1 [1 :<I1> 0 0 ]", False, "3 numbers"),
        (b"<I1V> 1 [1 :<I1> 0 0 0 <I1> 0 0 0 ]", False, "expected 1 cindexes, found 2"),
    ],
)
def test_bad_cindex_vectors(data: bytes, binary: bool, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_cindex_vector(Reader(io.BytesIO(data), "x", binary))


def test_vectors_of_one_size_are_not_taken_for_each_other() -> None:
    first = np.array([[0, 5, 0], [1, 5, 0], [0, 6, 0], [1, 6, 0]], np.int32)
    in_x, in_t = first.copy(), first.copy()
    in_x[:, 2] += 1
    in_t[3, 1] += 1
    vectors = [first, first, in_x, first, in_t]
    file = io.BytesIO()
    for vector in vectors:
        write_index_vector(Writer(file, True), vector)
    data = file.getvalue()
    for source in (io.BytesIO(data), Trickle(data, 7)):
        reader = Reader(source, "x", True)
        for vector in vectors:
            found = read_index_vector(reader)
            np.testing.assert_array_equal(found, vector)
            found[:] = -1  # changes by the caller must not affect the next vector
    cut = Reader(io.BytesIO(data[:-3]), "x", True)
    for _ in vectors[1:]:
        read_index_vector(cut)
    with pytest.raises(DataError, match="found the end of the stream"):
        read_index_vector(cut)
