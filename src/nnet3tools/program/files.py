"""Programs as files: Kaldi's text and binary form of NnetComputation, version 5.

Format: NnetComputation::Read and Write in nnet-computation.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from nnet3tools.io.files import open_input, open_output
from nnet3tools.io.index_vector import (
    read_cindex_vector,
    read_index_vector,
    write_cindex_vector,
    write_index_vector,
)
from nnet3tools.nnet.components.registry import read_precomputed_indexes
from nnet3tools.program.commands import COMMANDS, Command
from nnet3tools.program.computation import (
    Computation,
    MatrixDebugInfo,
    MatrixInfo,
    PrecomputedInfo,
    StrideType,
    SubMatrixInfo,
)

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer

__all__ = [
    "load_computation",
    "read_computation",
    "save_computation",
    "write_computation",
]

VERSION = 5
_BY_NAME = {cls.NAME: cls for cls in COMMANDS.values()}
T = TypeVar("T")


def load_computation(rxfilename: str) -> Computation:
    """Read a program from a file, pipe or offset; DataError if it is not a whole valid one."""
    with open_input(rxfilename) as reader:
        return read_computation(reader)


def save_computation(wxfilename: str, computation: Computation, binary: bool = True) -> None:
    """Write a program to a file or pipe."""
    with open_output(wxfilename, binary) as writer:
        write_computation(writer, computation)


def read_computation(reader: Reader) -> Computation:
    """Read a program, from `<NnetComputation>` to `</NnetComputation>`."""
    reader.expect_token("<NnetComputation>")
    version = 1
    if _choose(reader, "<Version>", "<NumMatrices>") == "<Version>":
        version = reader.read_int32()
        reader.expect_token("<NumMatrices>")
    if version != VERSION:
        raise reader.error(f"program of version {version}, expected {VERSION}; compile it again")
    matrices = _read_list(reader, "<Matrices>", _read_matrix)
    debug_info = _read_table(reader, "<NumMatrixDebugInfo>", "<MatrixDebugInfo>", _read_debug_info)
    computation = Computation(
        matrices=matrices,
        matrix_debug_info=debug_info,
        submatrices=_read_table(reader, "<NumSubMatrices>", "<SubMatrices>", _read_submatrix),
        component_precomputed_indexes=_read_precomputed_list(reader),
        indexes=_read_table(reader, "<NumIndexes>", "<Indexes>", _read_int32_vector),
        indexes_multi=_read_table(reader, "<NumIndexesMulti>", "<IndexesMulti>", _read_int_pairs),
        indexes_ranges=_read_table(
            reader, "<NumIndexesRanges>", "<IndexesRanges>", _read_int_pairs
        ),
        commands=_read_table(reader, "<NumCommands>", "<Commands>", _read_command),
    )
    reader.expect_token("<NeedModelDerivative>")
    computation.need_model_derivative = reader.read_bool()
    reader.expect_token("</NnetComputation>")
    _check_tables(reader, computation)
    return computation


def write_computation(writer: Writer, computation: Computation) -> None:
    """Write a program exactly as Kaldi does."""
    writer.write_token("<NnetComputation>")
    writer.write_token("<Version>")
    writer.write_int32(VERSION)
    _write_table(writer, "<NumMatrices>", "<Matrices>", computation.matrices, _write_matrix)
    _write_table(
        writer,
        "<NumMatrixDebugInfo>",
        "<MatrixDebugInfo>",
        computation.matrix_debug_info,
        _write_debug_info,
    )
    _write_table(
        writer, "<NumSubMatrices>", "<SubMatrices>", computation.submatrices, _write_submatrix
    )
    precomputed = computation.component_precomputed_indexes
    writer.write_token("<NumComponentPrecomputedIndexes>")
    writer.write_size(len(precomputed))
    writer.write_token("<PrecomputedIndexesInfo>")
    for info in precomputed[1:]:
        _write_precomputed(writer, info)
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
    _write_table(writer, "<NumCommands>", "<Commands>", computation.commands, _write_command)
    writer.write_token("<NeedModelDerivative>")
    writer.write_bool(computation.need_model_derivative)
    writer.write_token("</NnetComputation>")
    writer.write_newline()


def _choose(reader: Reader, *tokens: str) -> str:
    """Consume and return the next token, which must be one of these."""
    found = reader.peek_token()
    if found not in tokens:
        raise reader.error(f"expected {' or '.join(tokens)}, found '{found}'")
    return reader.read_token()


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
    writer.write_token(count)
    writer.write_size(len(entries))
    writer.write_token(token)
    for value in entries:
        entry(writer, value)
    writer.write_newline()


def _read_int32_vector(reader: Reader) -> np.ndarray:
    return reader.read_int32_vector()


def _read_int_pairs(reader: Reader) -> np.ndarray:
    return reader.read_int_pairs()


# -- matrices


def _read_matrix(reader: Reader) -> MatrixInfo:
    reader.expect_token("<MatrixInfo>")
    reader.expect_token("<NumRows>")
    num_rows = reader.read_int32()
    reader.expect_token("<NumCols>")
    num_cols = reader.read_int32()
    stride = StrideType.DEFAULT
    if _choose(reader, "</MatrixInfo>", "<StrideEqualNumCols>") == "<StrideEqualNumCols>":
        stride = StrideType.EQUAL_NUM_COLS
        reader.expect_token("</MatrixInfo>")
    return MatrixInfo(num_rows, num_cols, stride)


def _write_matrix(writer: Writer, info: MatrixInfo) -> None:
    writer.write_token("<MatrixInfo>")
    writer.write_newline()
    writer.write_token("<NumRows>")
    writer.write_int32(info.num_rows)
    writer.write_token("<NumCols>")
    writer.write_int32(info.num_cols)
    if info.stride_type != StrideType.DEFAULT:
        writer.write_token("<StrideEqualNumCols>")
    writer.write_newline()
    writer.write_token("</MatrixInfo>")
    writer.write_newline()


def _read_debug_info(reader: Reader) -> MatrixDebugInfo:
    reader.expect_token("<MatrixDebugInfo>")
    reader.expect_token("<IsDeriv>")
    is_deriv = reader.read_bool()
    reader.expect_token("<Cindexes>")
    nodes, indexes = read_cindex_vector(reader)
    reader.expect_token("</MatrixDebugInfo>")
    return MatrixDebugInfo(is_deriv, nodes, indexes)


def _write_debug_info(writer: Writer, info: MatrixDebugInfo) -> None:
    writer.write_token("<MatrixDebugInfo>")
    writer.write_newline()
    writer.write_token("<IsDeriv>")
    writer.write_bool(info.is_deriv)
    writer.write_newline()
    writer.write_token("<Cindexes>")
    write_cindex_vector(writer, info.nodes, info.indexes)
    writer.write_newline()
    writer.write_token("</MatrixDebugInfo>")
    writer.write_newline()


_SUBMATRIX_TOKENS = ("<MatrixIndex>", "<RowOffset>", "<NumRows>", "<ColOffset>", "<NumCols>")


def _read_submatrix(reader: Reader) -> SubMatrixInfo:
    reader.expect_token("<SubMatrixInfo>")
    values = []
    for token in _SUBMATRIX_TOKENS:
        reader.expect_token(token)
        values.append(reader.read_int32())
    reader.expect_token("</SubMatrixInfo>")
    return SubMatrixInfo(*values)


def _write_submatrix(writer: Writer, info: SubMatrixInfo) -> None:
    writer.write_token("<SubMatrixInfo>")
    writer.write_newline()
    for token, value in zip(_SUBMATRIX_TOKENS, info, strict=True):
        writer.write_token(token)
        writer.write_int32(value)
    writer.write_newline()
    writer.write_token("</SubMatrixInfo>")
    writer.write_newline()


# -- precomputed indexes


def _no_indexes() -> np.ndarray:
    return np.empty((0, 3), np.int32)


def _read_precomputed_list(reader: Reader) -> list[PrecomputedInfo]:
    reader.expect_token("<NumComponentPrecomputedIndexes>")
    size = reader.read_size()
    none = PrecomputedInfo(None, _no_indexes(), _no_indexes())
    token = _choose(reader, "<PrecomputedIndexesInfo>", "<ComponentPrecomputedIndexes>")
    if token == "<ComponentPrecomputedIndexes>":  # Kaldi before shortcut compilation
        return [
            none
            if reader.read_bool()
            else PrecomputedInfo(read_precomputed_indexes(reader), _no_indexes(), _no_indexes())
            for _ in range(size)
        ]
    infos = [none]
    for _ in range(size - 1):
        data = read_precomputed_indexes(reader)
        infos.append(PrecomputedInfo(data, read_index_vector(reader), read_index_vector(reader)))
    return infos


def _write_precomputed(writer: Writer, info: PrecomputedInfo) -> None:
    assert info.data is not None
    info.data.write(writer)
    write_index_vector(writer, info.input_indexes)
    write_index_vector(writer, info.output_indexes)


# -- commands


def _read_command(reader: Reader) -> Command:
    reader.expect_token("<Cmd>")
    cls: type[Command] | None
    if reader.binary:
        kind = reader.read_int32()
        cls, found = COMMANDS.get(kind), f"number {kind}"
        alpha = reader.read_float()
        args = reader.read_int32_vector().tolist()
    else:
        found = reader.read_token()
        cls = _BY_NAME.get(found)
        reader.expect_token("<Alpha>")
        alpha = reader.read_float()
        reader.expect_token("<Args>")
        args = [reader.read_int32() for _ in range(7)]
    if cls is None:
        raise reader.error(f"unknown command {found} in a program")
    reader.expect_token("</Cmd>")
    return cls.from_args(alpha, args)


def _write_command(writer: Writer, command: Command) -> None:
    writer.write_token("<Cmd>")
    alpha, args = command.to_args()
    if writer.binary:
        writer.write_int32(command.KIND)
        writer.write_float(alpha)
        while args and args[-1] == -1:
            args.pop()
        writer.write_int32_vector(np.array(args, np.int32))
    else:
        numbers = " ".join(map(str, args))
        writer.write_text(f"{command.NAME}\n<Alpha> {alpha:.7g} <Args> {numbers} ")
    writer.write_token("</Cmd>")


def _check_tables(reader: Reader, computation: Computation) -> None:
    """DataError unless the reserved first entries are there and submatrices lie in matrices.

    The checker sees to the rest; this is what the printer and the checker themselves rely on.
    """
    sub = np.array(computation.submatrices, np.int64).reshape(-1, 5)
    mat = np.array([m[:2] for m in computation.matrices], np.int64).reshape(-1, 2)
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
