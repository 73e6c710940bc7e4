"""Program files: text and binary, there and back, and what is refused."""

import io

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.stream import Writer
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
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
from nnet3tools.program.seal import _MAKERS
from support.handmade import CONFIG, small_nnet, small_program
from support.streams import bytes_reader

SEAL = b"<NetworkStructure> "


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


@pytest.fixture(params=[True, False], ids=["binary", "text"])
def sealed(request, tmp_path):
    """A program file for `small_nnet()`, with its seal."""
    nnet = small_nnet()
    path = tmp_path / "program"
    save_computation(str(path), small_program(nnet).computation, nnet, request.param)
    return path


def replace_in(path, old, new):
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


def test_kaldis_program_is_all_before_the_seal(sealed):
    nnet = small_nnet()
    program = small_program(nnet).computation
    data = sealed.read_bytes()
    assert data[: data.index(SEAL)] == to_bytes(program, data[:1] == b"\0")
    assert_equal(load_computation(str(sealed), nnet), program)
    sealed.write_bytes(data[: data.index(SEAL)])
    assert_equal(load_computation(str(sealed), nnet), program)


def test_program_of_a_network_with_other_scales_is_refused_though_it_would_run(sealed):
    other = Nnet.from_config(
        parse_config_lines(CONFIG.replace("input=norm", "input=Scale(2, norm)"))
    )
    expected = f"^{sealed}: it was made for a network of another structure$"
    with pytest.raises(DataError, match=expected):
        load_computation(str(sealed), other)


def test_changed_program_is_refused_though_it_would_run(sealed):
    replace_in(sealed, b"ivative> T", b"ivative> F")
    with pytest.raises(
        DataError, match=f"^{sealed}: its content was damaged since it was written$"
    ):
        load_computation(str(sealed), small_nnet())


@pytest.mark.parametrize(
    ("token", "words"),
    [("<Processor>", "processor pdp11, expected "), ("<Version>", "version pdp11, expected ")],
)
def test_program_of_another_version_or_processor_is_used_with_a_warning(
    sealed, capsys, token, words
):
    replace_in(sealed, f"{token} {_MAKERS[token]} ".encode(), f"{token} pdp11 ".encode())
    nnet = small_nnet()
    assert_equal(load_computation(str(sealed), nnet), small_program(nnet).computation)
    assert capsys.readouterr().err.count(f"{sealed}: it was made by {words}") == 1


def test_truncated_seal_is_one_line(sealed):
    data = sealed.read_bytes()
    for size in range(data.index(SEAL) + len(SEAL), len(data) - 70, 7):
        sealed.write_bytes(data[:size])
        with pytest.raises(DataError, match=f"^{sealed}: it[^\n]*$"):
            load_computation(str(sealed), small_nnet())


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
