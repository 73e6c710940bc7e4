"""Commands: operands, Kaldi's arguments, renumbering."""

import pytest

from nnet3tools.program.commands import (
    COMMANDS,
    AddRowsMulti,
    Backprop,
    BackpropNoModelUpdate,
    CompressMatrix,
    CopyRows,
    MatrixCopy,
    NoOperation,
    Propagate,
    SetConst,
    SwapMatrix,
)
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import AccessType


def example(cls):
    """A command with arguments 1, 2, 3..."""
    return cls.from_args(0.5 if cls.ALPHA else 1.0, range(1, len(cls.ARGS) + 1))


def test_every_kaldi_command_has_a_class():
    assert set(range(25)) <= set(COMMANDS)
    assert [COMMANDS[k].NAME for k in (0, 6, 15, 24)] == [
        "kAllocMatrix",
        "kBackpropNoModelUpdate",
        "kAddRowRanges",
        "kGotoLabel",
    ]


@pytest.mark.parametrize("cls", COMMANDS.values(), ids=lambda cls: cls.NAME)
def test_arguments_there_and_back(cls):
    command = example(cls)
    assert cls.from_args(*command.to_args()) == command
    assert len(command.to_args()[1]) == 7


def test_arguments_are_in_kaldis_order():
    command = Propagate(component=4, precomputed=0, input=7, output=8, memo=2, store_stats=True)
    assert command.to_args() == (1.0, [4, 0, 7, 8, 2, 1, -1])
    assert SetConst(3, 0.25).to_args() == (0.25, [3, -1, -1, -1, -1, -1, -1])
    assert CompressMatrix(3, 2, True, 0.0).to_args() == (0.0, [3, 2, 1, -1, -1, -1, -1])


def test_stale_arguments_are_kept_but_not_compared():
    command = MatrixCopy.from_args(1.0, [3, 4, 9])
    assert command.to_args()[1] == [3, 4, 9, -1, -1, -1, -1]
    assert command == MatrixCopy(3, 4)
    assert command.replace(dest=5).to_args()[1] == [5, 4, 9, -1, -1, -1, -1]


@pytest.mark.parametrize("cls", COMMANDS.values(), ids=lambda cls: cls.NAME)
def test_renumbering_changes_submatrices_only(cls):
    command = example(cls)
    moved = command.map_submatrices(lambda s: s + 100)
    for name, kind in cls.OPERANDS.items():
        expected = getattr(command, name) + (100 if kind == "Submatrix" else 0)
        assert getattr(moved, name) == expected


def test_renumbering_by_table_leaves_none_alone():
    command = Backprop(1, 0, 0, 2, 3, 0)
    assert command.map_submatrices([9, 9, 5, 6]) == Backprop(1, 0, 0, 5, 6, 0)
    assert command.map_submatrices(lambda s: s) is command
    assert CopyRows(1, 2, 3).map_operands("Indexes", [0, 0, 0, 8]) == CopyRows(1, 2, 8)


def test_commands_are_values():
    command = SwapMatrix(1, 2)
    assert len({command, SwapMatrix(1, 2), NoOperation(), NoOperation()}) == 2
    assert not hasattr(command, "__dict__")


def test_no_model_update_is_a_backprop_without_side_effects():
    assert issubclass(BackpropNoModelUpdate, Backprop)
    assert not BackpropNoModelUpdate.UPDATES
    assert Backprop(1, 0, 0, 2, 3, 0) != BackpropNoModelUpdate(1, 0, 0, 2, 3, 0)


def test_copy_with_gaps_counts_as_reading_what_was_there():
    computation = Computation()
    full = computation.new_indexes([0, 1])
    gaps = computation.new_indexes([0, -1])
    kinds = [CopyRows(1, 2, i).accesses(computation, None)[0].type for i in (full, gaps)]
    assert kinds == [AccessType.WRITE, AccessType.READ_WRITE]


def test_multi_command_touches_each_listed_submatrix_once():
    computation = Computation()
    pairs = computation.new_indexes_multi([[4, 0], [4, 1], [-1, -1], [2, 0], [4, 2]])
    accesses = AddRowsMulti(7, pairs).accesses(computation, None)
    assert [a.submatrix for a in accesses] == [7, 2, 4]
