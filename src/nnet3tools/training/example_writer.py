"""Writing many examples that have the same indexes."""

from __future__ import annotations

import io

from nnet3tools.io.compressed import CompressedMatrix, bytes_of
from nnet3tools.io.general_matrix import GeneralMatrix, write_general_matrix
from nnet3tools.io.writer import Writer
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.training.example import NnetExample
from nnet3tools.training.example_format import EXAMPLE_LAYOUTS

_MOST = 64


class ExampleWriter:
    """Writes examples fast: bytes between the matrices are encoded once per names and index arrays.

    Examples of one utterance share index arrays, which must not be changed.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[list[IndexArray], tuple[bytes, ...]]] = {}

    def write(self, writer: Writer, example: NnetExample) -> None:
        """Write an example in Kaldi's format, as EXAMPLE, the holder of tables, does."""
        if not writer.binary:
            example.write(writer)
            return
        key = tuple([part for one in example.io for part in (one.name, id(one.indexes))])
        if (known := self._known.get(key)) is None:
            encoded = EXAMPLE_LAYOUTS.encode(example)
            if encoded is None or encoded.holes:
                example.write(writer)
                return
            if len(self._known) >= _MOST:
                self._known.clear()
            # The arrays are kept, so that no other array gets their id.
            known = [one.indexes for one in example.io], encoded.layout.fixed
            self._known[key] = known
        first, *others = known[1]
        parts = [first]
        for one, fixed in zip(example.io, others, strict=True):
            parts += [_matrix_bytes(one.features), fixed]
        writer.write_bytes(b"".join(parts))


def _matrix_bytes(matrix: GeneralMatrix) -> bytes:
    if isinstance(matrix, CompressedMatrix):
        return bytes_of(matrix)
    file = io.BytesIO()
    write_general_matrix(Writer(file), matrix)
    return file.getvalue()
