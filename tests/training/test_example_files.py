"""Examples as files: both forms, every kind of features, and files that are not examples."""

import io
import struct

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.compressed import CompressedMatrix
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.stream import Reader
from nnet3tools.training.example import NnetExample, frames_io, structure_hash
from support.streams import bytes_of
from support.training_helpers import example, one_hot


def to_bytes(eg: NnetExample, binary: bool) -> bytes:
    return bytes_of(eg.write, binary=binary)


def from_bytes(data: bytes, binary: bool) -> NnetExample:
    reader = Reader(io.BytesIO(data), "test.egs")
    reader.binary = binary
    return NnetExample.read(reader)


def all_kinds() -> NnetExample:
    features = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    return NnetExample(
        [
            frames_io("input", -3, features),
            frames_io("coded", 0, CompressedMatrix.from_dense(features)),
            frames_io("output", 0, one_hot([1, 0, 2, 1], 3, weight=0.25), t_stride=3),
        ]
    )


@pytest.mark.parametrize("binary", [True, False])
def test_round_trip(binary):
    eg = all_kinds()
    data = to_bytes(eg, binary)
    again = from_bytes(data, binary)
    assert to_bytes(again, binary) == data
    for a, b in zip(eg.io, again.io, strict=True):
        assert a.name == b.name
        np.testing.assert_array_equal(a.indexes, b.indexes)
        np.testing.assert_allclose(to_dense(a.features), to_dense(b.features), rtol=1e-6)
        assert type(a.features) is type(b.features) or not binary


def test_binary_layout():
    """By hand from Kaldi's Write functions: one io of one row at n = t = x = 0."""
    eg = NnetExample([frames_io("input", 0, np.array([[1.5, -2.0]], np.float32))])
    expected = (
        b"<Nnet3Eg> <NumIo> \x04\x01\x00\x00\x00<NnetIo> input <I1V> \x04\x01\x00\x00\x00\x00"
        b"FM \x04\x01\x00\x00\x00\x04\x02\x00\x00\x00"
        + struct.pack("<2f", 1.5, -2.0)
        + b"</NnetIo> </Nnet3Eg> "
    )
    assert to_bytes(eg, binary=True) == expected


@pytest.mark.parametrize("binary", [True, False])
def test_truncated_anywhere_is_an_error(binary):
    data = to_bytes(example(num_frames=2, dim=2, context=1), binary)
    for end in range(0, len(data.rstrip()) - 1, 3):
        with pytest.raises(DataError, match=r"test\.egs"):
            from_bytes(data[:end], binary)


def test_rows_and_indexes_must_agree():
    eg = example(num_frames=2, dim=2, context=0)
    data = to_bytes(eg, binary=False).replace(b"<NumIo>", b"<NumIo>")
    wrong = data.replace(b"<I1V> 2 <I1> 0 0 0 <I1> 0 1 0", b"<I1V> 1 <I1> 0 0 0", 1)
    assert wrong != data
    with pytest.raises(DataError, match="'input' of an example has 2 rows of features for 1 index"):
        from_bytes(wrong, binary=False)


@pytest.mark.parametrize("count", [0, -5, 2_000_000])
def test_impossible_number_of_inputs(count):
    data = b"<Nnet3Eg> <NumIo> %d <NnetIo> " % count
    with pytest.raises(DataError, match=f"cannot have {count} inputs and outputs"):
        from_bytes(data, binary=False)


def test_structure_hash_by_hand():
    """Kaldi's formulas, written out for one io named "a" with a single row at t = 2."""
    eg = NnetExample([frames_io("a", 2, np.zeros((1, 3), np.float32))])
    io_hash = ord("a") + (1433 + 34949 + 2 * 15649) + 19249 + 3 * 14731
    assert structure_hash(eg) == (35099 * 19157 + io_hash) % (1 << 64)


def test_structure_hash_of_negative_times_wraps_around():
    eg = NnetExample([frames_io("a", -7, np.zeros((1, 3), np.float32))])
    io_hash = ord("a") + (1433 + 34949 - 7 * 15649) + 19249 + 3 * 14731
    assert structure_hash(eg) == (35099 * 19157 + io_hash) % (1 << 64)
