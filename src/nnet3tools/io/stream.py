"""Kaldi streams: `Reader` and `Writer`, and both over bytes in memory."""

from __future__ import annotations

import io

from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

__all__ = ["Reader", "Writer", "bytes_reader"]


def bytes_reader(data: bytes, name: str = "bytes") -> Reader:
    """A reader of bytes in memory whose header, if any, is already read."""
    reader = Reader(io.BytesIO(data), name)
    reader.read_header()
    return reader
