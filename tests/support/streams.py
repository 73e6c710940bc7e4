"""Streams in memory, and values to put into them."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.io.posterior import Posterior
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.stream import Reader, Writer


def bytes_reader(data: bytes, name: str = "bytes") -> Reader:
    """A reader of bytes whose header, if any, is already read."""
    reader = Reader(io.BytesIO(data), name)
    reader.read_header()
    return reader


def to_bytes(value: Any, binary: bool) -> bytes:
    """The file of a value that has `write`, header and all: what `bytes_reader` reads."""
    return (b"\0B" if binary else b"") + bytes_of(value.write, binary=binary)


def bytes_of(write: Callable[..., object], *values: Any, binary: bool = True) -> bytes:
    """What `write` writes, called with a writer and the values; it has no header."""
    file = io.BytesIO()
    write(Writer(file, binary, "memory"), *values)
    return file.getvalue()


class Trickle(io.RawIOBase):
    """A pipe that gives a few bytes at a time and has no length."""

    def __init__(self, data: bytes, piece: int = 3) -> None:
        self.data, self.at, self.piece = data, 0, piece

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        part = self.data[self.at : self.at + min(self.piece, len(buffer))]
        buffer[: len(part)] = part
        self.at += len(part)
        return len(part)


def random_sparse(rng: np.random.Generator, rows: int, cols: int) -> SparseMatrix:
    counts = rng.integers(0, min(cols, 5) + 1, rows)
    indices = [np.sort(rng.choice(cols, count, replace=False)) for count in counts]
    values = rng.normal(size=counts.sum()).astype("f4")
    return SparseMatrix.from_counts(counts, np.concatenate([[], *indices]), values, cols)


def random_posterior(rng: np.random.Generator, frames: int, most: int) -> Posterior:
    counts = rng.integers(0, most + 1, frames)
    pdfs = rng.integers(0, 10, counts.sum())
    return Posterior.from_counts(counts, pdfs, rng.uniform(0.1, 1, counts.sum()))
