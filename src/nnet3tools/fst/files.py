"""FSTs in files and tables: OpenFst's binary files, and Kaldi's text form."""

from __future__ import annotations

from nnet3tools.fst.binary_reader import read_binary_fst
from nnet3tools.fst.binary_writer import write_const_fst, write_vector_fst
from nnet3tools.fst.fst import Fst
from nnet3tools.fst.text_form import read_fst_text, write_fst_text
from nnet3tools.io.files import open_input, open_output
from nnet3tools.io.holders import Holder
from nnet3tools.io.stream import Reader, Writer


def read_fst(reader: Reader) -> Fst:
    """Read an FST in OpenFst's binary form or in text form; DataError for other data."""
    if chr(max(reader.peek_byte(), 0)).isspace():
        return read_fst_text(reader)
    return read_binary_fst(reader)


def load_fst(rxfilename: str) -> Fst:
    """Read the FST in the file or pipe that an rxfilename gives."""
    with open_input(rxfilename, header=False) as reader:
        return read_fst(reader)


def save_fst(wxfilename: str, fst: Fst, symbols: bytes = b"") -> None:
    """Write a vector file, always in binary as Kaldi does, to a file, pipe or "-".

    `symbols` is a binary symbol table for the header, or empty.
    """
    with open_output(wxfilename, header=False) as writer:
        write_vector_fst(writer, fst, symbols)


def save_const_fst(wxfilename: str, fst: Fst) -> None:
    """Write a const file, which decoders read fastest."""
    with open_output(wxfilename, header=False) as writer:
        write_const_fst(writer, fst)


_TABLE_DIGITS = 6
"""Digits in text tables of FSTs, where Kaldi leaves a C++ stream's default precision."""


def _write_of_table(writer: Writer, fst: Fst) -> None:
    if writer.binary:
        write_vector_fst(writer, fst)
    else:
        write_fst_text(writer, fst, _TABLE_DIGITS)


FST: Holder[Fst] = Holder("an FST", read_fst, _write_of_table, has_header=False)
"""Holder of tables of FSTs (Kaldi's VectorFstHolder)."""
