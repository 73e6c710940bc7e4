"""Randomly damaged files of every kind give a DataError or values, never another exception."""

import io

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io import holders
from nnet3tools.io.general_matrix import CompressionMethod, compress
from nnet3tools.io.index_vector import (
    read_cindex_vector,
    read_index_vector,
    write_cindex_vector,
    write_index_vector,
)
from nnet3tools.io.reader import Reader
from nnet3tools.io.table_reader import iterate_archive
from nnet3tools.io.writer import Writer
from support.streams import Trickle, random_posterior, random_sparse

DENSE = np.random.default_rng(11).normal(size=(12, 4)).astype(np.float32)
ROWS = np.random.default_rng(12).integers(-200, 200, (30, 3)).astype(np.int32)
NODES = np.sort(np.random.default_rng(13).integers(0, 4, 30)).astype(np.int32)

INDEXES = holders.Holder("indexes", read_index_vector, write_index_vector)
CINDEXES = holders.Holder(
    "cindexes", read_cindex_vector, lambda writer, value: write_cindex_vector(writer, *value)
)
OBJECTS = {
    "matrix": (holders.MATRIX, DENSE),
    "double matrix": (holders.MATRIX, DENSE.astype(np.float64)),
    "vector": (holders.VECTOR, DENSE[0]),
    "sparse": (holders.GENERAL_MATRIX, random_sparse(np.random.default_rng(14), 20, 9)),
    "posterior": (holders.POSTERIOR, random_posterior(np.random.default_rng(15), 20, 3)),
    "integers": (holders.INT32_VECTOR, NODES),
    "indexes": (INDEXES, ROWS),
    "cindexes": (CINDEXES, (NODES, ROWS)),
    "CM": (holders.GENERAL_MATRIX, compress(DENSE)),
    "CM2": (holders.GENERAL_MATRIX, compress(DENSE, CompressionMethod.TWO_BYTE_AUTO)),
    "CM3": (holders.GENERAL_MATRIX, compress(DENSE, CompressionMethod.ONE_BYTE_AUTO)),
    "number": (holders.FLOAT, 0.5),
}


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    kind = rng.integers(4)
    at = int(rng.integers(len(data)))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + int(rng.integers(1, 9)) :]
    if kind == 2:
        return data[:at] + rng.bytes(int(rng.integers(1, 9))) + data[at:]
    flipped = bytearray(data)
    for place in rng.integers(0, len(data), rng.integers(1, 4)):
        flipped[place] = rng.integers(256)
    return bytes(flipped)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("name", OBJECTS)
def test_damage_is_a_data_error_or_goes_unnoticed(name: str, binary: bool) -> None:
    holder, value = OBJECTS[name]
    out = io.BytesIO()
    writer = Writer(out, binary)
    for key in ("one", "two"):
        writer.write_text(key + " ")
        holder.write_object(writer, value)
    rng = np.random.default_rng(12)
    messages: list[str] = []
    for _ in range(100):
        data = damage(out.getvalue(), rng)
        file = Trickle(data, 50) if rng.random() < 0.3 else io.BytesIO(data)
        try:
            list(iterate_archive(Reader(file, "x"), holder))
        except DataError as error:
            messages.append(str(error))
    assert messages
    assert all(message.startswith("x: ") for message in messages)
    assert max(len(message.splitlines()) for message in messages) == 1
    assert max(map(len, messages)) < 400
