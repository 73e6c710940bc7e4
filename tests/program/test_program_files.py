"""Program files: text and binary, there and back, and what is refused."""

import io

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.stream import Writer
from nnet3tools.program.commands import (
    AddRowRanges,
    AddToRowsMulti,
    CopyRows,
    GotoLabel,
    MatrixCopy,
    SetConst,
)
from nnet3tools.program.computation import StrideType
from nnet3tools.program.files import (
    load_computation,
    read_computation,
    save_computation,
    write_computation,
)
from support.handmade import small_nnet, small_program
from support.streams import bytes_reader


def to_bytes(computation, binary):
    out = io.BytesIO()
    writer = Writer(out, binary)
    writer.write_header()
    write_computation(writer, computation)
    return out.getvalue()


def assert_equal(a, b):
    assert (a.matrices, a.submatrices, a.commands) == (b.matrices, b.submatrices, b.commands)
    assert a.need_model_derivative == b.need_model_derivative
    for name in ("indexes", "indexes_multi", "indexes_ranges"):
        x, y = getattr(a, name), getattr(b, name)
        assert len(x) == len(y)
        assert all(np.array_equal(i, j) for i, j in zip(x, y, strict=True))
    for x, y in zip(a.matrix_debug_info, b.matrix_debug_info, strict=True):
        assert x.is_deriv == y.is_deriv
        assert np.array_equal(x.nodes, y.nodes)
        assert np.array_equal(x.indexes, y.indexes)


@pytest.fixture
def computation():
    c = small_program(small_nnet()).computation
    c.matrices[3] = c.matrices[3]._replace(stride_type=StrideType.EQUAL_NUM_COLS)
    c.commands += [
        CopyRows(2, 3, c.new_indexes([0, -1, 4, 3, 2]), 0.125),
        AddToRowsMulti(2, c.new_indexes_multi([[3, 1], [-1, -1], [4, 0], [4, 1], [4, 2]]), -1.0),
        AddRowRanges(2, 3, c.new_indexes_ranges([[0, 2], [-1, -1], [1, 5], [0, 1], [4, 5]])),
        SetConst(1, 1.5),
        MatrixCopy.from_args(1.0, [2, 3, 4]),
        GotoLabel(0),
    ]
    return c


@pytest.mark.parametrize("binary", [True, False])
def test_there_and_back(computation, binary):
    data = to_bytes(computation, binary)
    again = read_computation(bytes_reader(data))
    assert_equal(computation, again)
    assert to_bytes(again, binary) == data


def test_text_is_kaldis(computation):
    text = to_bytes(computation, False).decode()
    assert text.startswith(
        f"<NnetComputation> <Version> 5 <NumMatrices> {len(computation.matrices)} <Matrices> "
        "<MatrixInfo> \n<NumRows> 0 <NumCols> 0 \n</MatrixInfo> \n"
    )
    assert "<StrideEqualNumCols> \n</MatrixInfo> \n" in text
    assert "<Cmd> kSetConst\n<Alpha> 1.5 <Args> 1 -1 -1 -1 -1 -1 -1 </Cmd> " in text
    assert text.endswith("\n<NeedModelDerivative> T </NnetComputation> \n")


def test_files(computation, tmp_path):
    path = str(tmp_path / "program")
    save_computation(path, computation, binary=False)
    assert_equal(load_computation(path), computation)


@pytest.mark.parametrize("binary", [True, False])
def test_truncation_is_one_line_naming_the_stream(computation, binary):
    data = to_bytes(computation, binary)
    for size in [*range(0, len(data) - 20, 97), len(data) - 20]:
        with pytest.raises(DataError, match=r"^bytes[^\n]*$"):
            read_computation(bytes_reader(data[:size]))


def test_false_counts_allocate_nothing(computation):
    data = to_bytes(computation, True)
    token = b"<NumMatrices> \xf8"
    at = data.index(token) + len(token)
    huge = data[:at] + (1 << 60).to_bytes(8, "little") + data[at + 8 :]
    with pytest.raises(DataError):
        read_computation(bytes_reader(huge))


def test_other_versions_are_refused(computation):
    text = to_bytes(computation, False).replace(b"<Version> 5", b"<Version> 4")
    with pytest.raises(DataError, match="version 4, expected 5"):
        read_computation(bytes_reader(text))


def test_unknown_commands_are_refused(computation):
    text = to_bytes(computation, False).replace(b"kSetConst", b"kSetFun")
    with pytest.raises(DataError, match="unknown command kSetFun"):
        read_computation(bytes_reader(text))


def test_submatrix_outside_its_matrix_is_refused(computation):
    computation.submatrices[2] = computation.submatrices[2]._replace(num_rows=1000)
    with pytest.raises(DataError, match="submatrix 2"):
        read_computation(bytes_reader(to_bytes(computation, True)))
