"""Archives of examples in memory: written, and read by any holder."""

import io
from collections.abc import Callable, Sequence
from typing import Any

from nnet3tools.errors import DataError
from nnet3tools.io.holders import Holder
from nnet3tools.io.stream import Reader
from nnet3tools.io.table_reader import iterate_archive
from support.streams import bytes_of

Stream = Callable[[bytes], Any]


def written(value: Any, binary: bool = True) -> bytes:
    """The bytes of an example, read in full or encoded; bytes themselves."""
    return value if isinstance(value, bytes) else bytes_of(value.write, binary=binary)


def archive(values: Sequence[Any]) -> bytes:
    """A binary archive of examples whose keys have different lengths."""
    return b"".join(
        f"utt-{'x' * (i % 5)}{i} \0B".encode() + written(value) for i, value in enumerate(values)
    )


def read(holder: Holder, data: bytes, stream: Stream = io.BytesIO) -> list[Any]:
    """The values of an archive."""
    return [value for _, value in iterate_archive(Reader(stream(data), "egs"), holder)]


def outcome(holder: Holder, data: bytes) -> tuple[list[tuple[str, bytes]], str]:
    """Keys and bytes of an archive as far as it can be read, and the error at its end, if any."""
    found: list[tuple[str, bytes]] = []
    try:
        for key, value in iterate_archive(Reader(io.BytesIO(data), "egs"), holder):
            found.append((key, written(value)))
    except DataError as error:
        return found, str(error)
    return found, ""
