"""Models that a file holds, after Kaldi's header of text or binary files."""

from __future__ import annotations

from typing import Self

from nnet3tools.io.files import open_input, open_output
from nnet3tools.io.stream import Reader, Writer


class StoredObject:
    """Base class of models, which files hold: its subclasses define `read` and `write`."""

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read an object in Kaldi's format; DataError for other data."""
        raise NotImplementedError

    def write(self, writer: Writer) -> None:
        """Write the object in Kaldi's format, in text or binary as `writer` does."""
        raise NotImplementedError

    @classmethod
    def load(cls, rxfilename: str) -> Self:
        """Read the object at the start of a file, pipe or "-"."""
        with open_input(rxfilename) as reader:
            return cls.read(reader)

    def save(self, wxfilename: str, binary: bool = True) -> None:
        """Write the object to a file (whole or not at all), pipe or "-"."""
        with open_output(wxfilename, binary) as writer:
            self.write(writer)
