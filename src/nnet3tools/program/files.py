"""Programs as files: Kaldi's text and binary form of NnetComputation, version 5.

Format: NnetComputation::Read and Write in nnet-computation.cc. Program files end with a seal
(seal.py), which Kaldi does not read.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from nnet3tools.errors import DataError, ProgramError, naming
from nnet3tools.io import log
from nnet3tools.io.files import open_input, open_output
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.checker import check_computation
from nnet3tools.program.computation import Computation
from nnet3tools.program.file_entries import (
    choose,
    read_command,
    read_debug_info,
    read_matrix,
    read_precomputed_list,
    read_submatrix,
    write_command,
    write_debug_info,
    write_matrix,
    write_precomputed,
    write_submatrix,
)
from nnet3tools.program.seal import NETWORK, read_seal, write_seal

VERSION = 5
T = TypeVar("T")


def load_computation(rxfilename: str, nnet: Nnet) -> Computation:
    """The program for `nnet` in a file, a pipe or at an offset; DataError if it does not fit."""
    with open_input(rxfilename) as reader:
        return read_program_file(rxfilename, reader, nnet)


def read_program_file(name: str, reader: Reader, nnet: Nnet) -> Computation:
    """The program in the file `name`, whose header has been read.

    DataError if the file is incomplete, is for a network of another structure, or fails the
    checker. A sound file of another version or kind of processor causes a warning.
    """
    computation = read_computation(reader)
    if reader.peek_token() == NETWORK:
        with naming(name):
            seal = read_seal(reader, nnet, encoded_computation(computation, reader.binary))
        if seal.foreign:
            log.warning(f"{name}: {seal.foreign}; results may differ in the last bits")
    try:
        check_computation(computation, nnet)
    except ProgramError as error:
        raise DataError(f"{name}: does not fit the network: {error}") from None
    return computation


def save_computation(
    wxfilename: str, computation: Computation, nnet: Nnet, binary: bool = True
) -> None:
    """Write a program for `nnet` to a file or pipe, then a seal that says what made it."""
    content = encoded_computation(computation, binary)
    with open_output(wxfilename, binary) as writer:
        writer.write_bytes(content)
        write_seal(writer, nnet, content)


def encoded_computation(computation: Computation, binary: bool) -> bytes:
    """The bytes of a program in Kaldi's binary or text form, without a file's header."""
    out = io.BytesIO()
    write_computation(Writer(out, binary), computation)
    return out.getvalue()


def read_computation(reader: Reader) -> Computation:
    """The program read from `<NnetComputation>` to `</NnetComputation>`."""
    reader.expect_token("<NnetComputation>")
    version = 1
    if choose(reader, "<Version>", "<NumMatrices>") == "<Version>":
        version = reader.read_int32()
        reader.expect_token("<NumMatrices>")
    if version != VERSION:
        raise reader.error(f"program of version {version}, expected {VERSION}; compile it again")
    matrices = _read_list(reader, "<Matrices>", read_matrix)
    debug_info = _read_table(reader, "<NumMatrixDebugInfo>", "<MatrixDebugInfo>", read_debug_info)
    computation = Computation(
        matrices=matrices,
        matrix_debug_info=list(debug_info),
        submatrices=_read_table(reader, "<NumSubMatrices>", "<SubMatrices>", read_submatrix),
        component_precomputed_indexes=read_precomputed_list(reader),
        indexes=_read_table(reader, "<NumIndexes>", "<Indexes>", _read_int32_vector),
        indexes_multi=_read_table(reader, "<NumIndexesMulti>", "<IndexesMulti>", _read_int_pairs),
        indexes_ranges=_read_table(
            reader, "<NumIndexesRanges>", "<IndexesRanges>", _read_int_pairs
        ),
        commands=_read_table(reader, "<NumCommands>", "<Commands>", read_command),
    )
    computation.need_model_derivative = reader.expect_token("<NeedModelDerivative>").read_bool()
    reader.expect_token("</NnetComputation>")
    _check_tables(reader, computation)
    return computation


def write_computation(writer: Writer, computation: Computation) -> None:
    """Write a program exactly as Kaldi does."""
    writer.write_token("<NnetComputation>")
    writer.write_token("<Version>").write_int32(VERSION)
    _write_table(writer, "<NumMatrices>", "<Matrices>", computation.matrices, write_matrix)
    _write_table(
        writer,
        "<NumMatrixDebugInfo>",
        "<MatrixDebugInfo>",
        computation.matrix_debug_info,
        write_debug_info,
    )
    _write_table(
        writer, "<NumSubMatrices>", "<SubMatrices>", computation.submatrices, write_submatrix
    )
    precomputed = computation.component_precomputed_indexes
    writer.write_token("<NumComponentPrecomputedIndexes>").write_size(len(precomputed))
    writer.write_token("<PrecomputedIndexesInfo>")
    for info in precomputed[1:]:
        write_precomputed(writer, info)
    writer.write_newline()
    _write_table(
        writer,
        "<NumIndexes>",
        "<Indexes>",
        computation.indexes,
        lambda w, a: w.write_int32_vector(a),
    )
    pairs = (
        ("<NumIndexesMulti>", "<IndexesMulti>", computation.indexes_multi),
        ("<NumIndexesRanges>", "<IndexesRanges>", computation.indexes_ranges),
    )
    for count, token, lists in pairs:
        _write_table(writer, count, token, lists, lambda w, a: w.write_int_pairs(a))
    _write_table(writer, "<NumCommands>", "<Commands>", computation.commands, write_command)
    writer.write_token("<NeedModelDerivative>").write_bool(computation.need_model_derivative)
    writer.write_token("</NnetComputation>").write_newline()


# -- tables: a count, a token, the entries


def _read_table(reader: Reader, count: str, token: str, entry: Callable[[Reader], T]) -> list[T]:
    reader.expect_token(count)
    return _read_list(reader, token, entry)


def _read_list(reader: Reader, token: str, entry: Callable[[Reader], T]) -> list[T]:
    # The list grows as entries are read: a false count ends in an error, not in a huge allocation.
    size = reader.read_size()
    reader.expect_token(token)
    return [entry(reader) for _ in range(size)]


def _write_table(
    writer: Writer, count: str, token: str, entries: list[T], entry: Callable[[Writer, T], None]
) -> None:
    writer.write_token(count).write_size(len(entries))
    writer.write_token(token)
    for value in entries:
        entry(writer, value)
    writer.write_newline()


def _read_int32_vector(reader: Reader) -> np.ndarray:
    return reader.read_int32_vector()


def _read_int_pairs(reader: Reader) -> np.ndarray:
    return reader.read_int_pairs()


def _check_tables(reader: Reader, computation: Computation) -> None:
    """DataError unless matrix 0 and submatrix 0 exist and are empty, and others lie in matrices."""
    sub = computation.submatrix_table()
    mat = computation.matrix_sizes()
    if not len(sub) or not len(mat) or sub[0].any() or mat[0].any():
        raise reader.error("program without the empty first matrix and submatrix")
    in_range = (sub[1:, 0] > 0) & (sub[1:, 0] < len(mat))
    size = mat[np.where(in_range, sub[1:, 0], 0)]
    fits = (
        (sub[1:, 1:] >= 0).all(axis=1)
        & (sub[1:, 1] + sub[1:, 2] <= size[:, 0])
        & (sub[1:, 3] + sub[1:, 4] <= size[:, 1])
    )
    if not (in_range & fits).all():
        bad = int(np.flatnonzero(~(in_range & fits))[0]) + 1
        raise reader.error(f"submatrix {bad} of the program lies outside its matrix")
    if computation.matrix_debug_info and len(computation.matrix_debug_info) != len(mat):
        raise reader.error(
            f"program with {len(mat)} matrices and debug information for "
            f"{len(computation.matrix_debug_info)}"
        )
