"""Examples passed on as bytes: the same bytes and faults as if they were read and written."""

import io
import random

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.compressed import CompressionMethod
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.general_matrix import compress
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.training.encoded_examples import ENCODED_EXAMPLES
from nnet3tools.training.example import NnetExample, NnetIo, frames_io
from nnet3tools.training.merging import merge_examples
from support.training_helpers import example, one_hot

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(6, 5)).astype(np.float32)
UNEVEN = SparseMatrix.from_counts([2, 0, 1], [0, 3, 1], [0.5, 0.5, 1.0], 4)
EVEN = SparseMatrix.from_counts([2, 2, 2], [0, 3, 1, 2, 0, 1], [0.5] * 6, 4)


def of(*features: object) -> NnetExample:
    return NnetExample([frames_io(f"io-{i}", -2, f) for i, f in enumerate(features)])


EXAMPLES = {
    "full": of(FEATURES),
    "compressed by columns": of(compress(RNG.normal(size=(20, 5)).astype(np.float32))),
    "16 bits": of(compress(FEATURES, CompressionMethod.TWO_BYTE_AUTO)),
    "8 bits": of(compress(FEATURES, CompressionMethod.ONE_BYTE_AUTO)),
    "sparse": of(FEATURES, one_hot([1, 0, 4], 5)),
    "uneven rows": of(UNEVEN),
    "two a row": of(EVEN, FEATURES[:1]),
    "jumps in t": NnetExample(
        [NnetIo("a", np.array([[0, 0, 0], [0, 900, 0], [0, 901, 2]], np.int32), FEATURES[:3])]
    ),
    "minibatch": merge_examples([example(seed=i) for i in range(3)], compress_features=True),
}
ODD = {"no rows": of(FEATURES[:0]), "no elements": of(FEATURES[:, :0])}


def written(value: NnetExample | EncodedRecord, binary: bool = True) -> bytes:
    file = io.BytesIO()
    ENCODED_EXAMPLES.write(Writer(file, binary), value)
    return file.getvalue()


class Trickle(io.BytesIO):
    """A pipe that gives a few bytes at a time."""

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(min(size or 1, 7))


def outcome(read, data: bytes) -> bytes | str:
    try:
        return written(read(Reader(io.BytesIO(data), binary=True)))
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("stream", [io.BytesIO, Trickle])
def test_bytes_pass_and_the_next_example_is_found(name, stream) -> None:
    data = written(EXAMPLES[name])
    reader = Reader(stream(b"x" + data + data), binary=True)
    reader.expect_byte(b"x", "x")
    for _ in range(2):
        value = ENCODED_EXAMPLES.read(reader)
        assert isinstance(value, EncodedRecord)
        assert value.data == data
    assert reader.at_end()


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_is_that_of_the_example(name) -> None:
    value = ENCODED_EXAMPLES.read(Reader(io.BytesIO(written(EXAMPLES[name])), binary=True))
    assert written(value, binary=False) == written(EXAMPLES[name], binary=False)


@pytest.mark.parametrize("name", ODD)
def test_other_forms_are_read_in_full(name) -> None:
    data = written(ODD[name])
    value = ENCODED_EXAMPLES.read(Reader(io.BytesIO(data), binary=True))
    assert isinstance(value, NnetExample)
    assert written(value) == data


@pytest.mark.parametrize("name", EXAMPLES)
def test_truncated_examples_have_the_error_of_the_full_reader(name) -> None:
    data = written(EXAMPLES[name])
    for size in {*range(0, len(data), 1 + len(data) // 60), len(data) - 1}:
        assert outcome(ENCODED_EXAMPLES.read, data[:size]) == outcome(NnetExample.read, data[:size])


@pytest.mark.parametrize("name", EXAMPLES)
def test_garbled_examples_have_the_error_of_the_full_reader(name) -> None:
    data = written(EXAMPLES[name])
    generator = random.Random(name)
    for _ in range(300):
        garbled = bytearray(data)
        garbled[generator.randrange(len(data))] = generator.choice([0, 4, 8, 32, 125, 127, 255])
        expected = outcome(NnetExample.read, bytes(garbled))
        found = outcome(ENCODED_EXAMPLES.read, bytes(garbled))
        # What is right passes as it is, also if the writer would have put it another way.
        assert found == expected or (isinstance(expected, bytes) and found == bytes(garbled))


def test_a_name_without_an_end_is_none() -> None:
    """Nor does the walk begin anew at the first byte, where one might be."""
    walk = ByteWalk(b"x" * 3000, 5)
    with pytest.raises(OtherFormError):
        walk.name()
    assert walk.at == 5


def test_a_header_that_asks_for_much_gets_nothing() -> None:
    data = written(EXAMPLES["full"])
    huge = data.replace(b"\4" + (6).to_bytes(4, "little"), b"\4\xff\xff\xff\x7f")
    with pytest.raises(DataError, match="expected 2147483647 indexes"):
        ENCODED_EXAMPLES.read(Reader(io.BytesIO(huge), binary=True))
