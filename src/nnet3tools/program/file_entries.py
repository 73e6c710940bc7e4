"""The entries of a program file's tables, such as matrices, debug information and commands."""

from __future__ import annotations

import numpy as np

from nnet3tools.errors import quoted
from nnet3tools.io.index_vector import (
    read_cindex_vector,
    read_index_vector,
    write_cindex_vector,
    write_index_vector,
)
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.registry import read_precomputed_indexes
from nnet3tools.program.commands import COMMANDS, Command
from nnet3tools.program.computation import (
    DebugInfo,
    MatrixDebugInfo,
    MatrixInfo,
    PrecomputedInfo,
    StrideType,
    SubMatrixInfo,
)

_BY_NAME = {cls.NAME: cls for cls in COMMANDS.values()}


def choose(reader: Reader, *tokens: str) -> str:
    """Consume and return the next token, which must be one of `tokens`."""
    found = reader.peek_token()
    if found not in tokens:
        raise reader.error(f"expected {' or '.join(tokens)}, found {quoted(found)}")
    return reader.read_token()


# -- matrices


def read_matrix(reader: Reader) -> MatrixInfo:
    """Read a <MatrixInfo> entry: the size of a matrix."""
    num_rows = reader.expect_token("<MatrixInfo>", "<NumRows>").read_int32()
    num_cols = reader.expect_token("<NumCols>").read_int32()
    stride = StrideType.DEFAULT
    if choose(reader, "</MatrixInfo>", "<StrideEqualNumCols>") == "<StrideEqualNumCols>":
        stride = StrideType.EQUAL_NUM_COLS
        reader.expect_token("</MatrixInfo>")
    return MatrixInfo(num_rows, num_cols, stride)


def write_matrix(writer: Writer, info: MatrixInfo) -> None:
    """Write a <MatrixInfo> entry: the size of a matrix."""
    writer.write_token("<MatrixInfo>").write_newline()
    writer.write_token("<NumRows>").write_int32(info.num_rows)
    writer.write_token("<NumCols>").write_int32(info.num_cols)
    if info.stride_type != StrideType.DEFAULT:
        writer.write_token("<StrideEqualNumCols>")
    writer.write_newline()
    writer.write_token("</MatrixInfo>").write_newline()


def read_debug_info(reader: Reader) -> MatrixDebugInfo:
    """Read a <MatrixDebugInfo> entry: the cindexes of a matrix's rows."""
    is_deriv = reader.expect_token("<MatrixDebugInfo>", "<IsDeriv>").read_bool()
    reader.expect_token("<Cindexes>")
    nodes, indexes = read_cindex_vector(reader)
    reader.expect_token("</MatrixDebugInfo>")
    return MatrixDebugInfo(is_deriv, nodes, indexes)


def write_debug_info(writer: Writer, info: DebugInfo) -> None:
    """Write a <MatrixDebugInfo> entry: the cindexes of a matrix's rows."""
    writer.write_token("<MatrixDebugInfo>").write_newline()
    writer.write_token("<IsDeriv>").write_bool(info.is_deriv)
    writer.write_newline()
    writer.write_token("<Cindexes>")
    write_cindex_vector(writer, info.nodes, info.indexes)
    writer.write_newline()
    writer.write_token("</MatrixDebugInfo>").write_newline()


_SUBMATRIX_TOKENS = ("<MatrixIndex>", "<RowOffset>", "<NumRows>", "<ColOffset>", "<NumCols>")


def read_submatrix(reader: Reader) -> SubMatrixInfo:
    """Read a <SubMatrixInfo> entry: the place of a submatrix in its matrix."""
    reader.expect_token("<SubMatrixInfo>")
    values = []
    for token in _SUBMATRIX_TOKENS:
        reader.expect_token(token)
        values.append(reader.read_int32())
    reader.expect_token("</SubMatrixInfo>")
    return SubMatrixInfo(*values)


def write_submatrix(writer: Writer, info: SubMatrixInfo) -> None:
    """Write a <SubMatrixInfo> entry: the place of a submatrix in its matrix."""
    writer.write_token("<SubMatrixInfo>").write_newline()
    for token, value in zip(_SUBMATRIX_TOKENS, info, strict=True):
        writer.write_token(token).write_int32(value)
    writer.write_newline()
    writer.write_token("</SubMatrixInfo>").write_newline()


# -- precomputed indexes


def _no_indexes() -> np.ndarray:
    return np.empty((0, 3), np.int32)


def read_precomputed_list(reader: Reader) -> list[PrecomputedInfo]:
    """Read the whole table of precomputed indexes, including its count."""
    size = reader.expect_token("<NumComponentPrecomputedIndexes>").read_size()
    none = PrecomputedInfo(None, _no_indexes(), _no_indexes())
    token = choose(reader, "<PrecomputedIndexesInfo>", "<ComponentPrecomputedIndexes>")
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


def write_precomputed(writer: Writer, info: PrecomputedInfo) -> None:
    """Write one entry of the table of precomputed indexes."""
    assert info.data is not None
    info.data.write(writer)
    write_index_vector(writer, info.input_indexes)
    write_index_vector(writer, info.output_indexes)


# -- commands


def read_command(reader: Reader) -> Command:
    """Read a <Cmd> entry: one command."""
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
        alpha = reader.expect_token("<Alpha>").read_float()
        reader.expect_token("<Args>")
        args = [reader.read_int32() for _ in range(7)]
    if cls is None:
        raise reader.error(f"unknown command {found} in a program")
    reader.expect_token("</Cmd>")
    return cls.from_args(alpha, args)


def write_command(writer: Writer, command: Command) -> None:
    """Write a <Cmd> entry: one command."""
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
