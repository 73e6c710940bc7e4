"""The checker: a sound program passes; each way of breaking one is named with its command.

optimizer/test_checker_mutations.py breaks programs of random networks in random ways.
"""

import math
import time

import numpy as np
import pytest

from nnet3tools.errors import ProgramError
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.program.checker import check_computation
from nnet3tools.program.commands import (
    AcceptInput,
    AddRowRanges,
    AddRowsMulti,
    AddToRowsMulti,
    AllocMatrix,
    Backprop,
    CompressMatrix,
    CopyRows,
    CopyToRowsMulti,
    DeallocMatrix,
    DecompressMatrix,
    GotoLabel,
    MatrixAdd,
    MatrixCopy,
    NoOperationMarker,
    Propagate,
    ProvideOutput,
    SetConst,
    SwapMatrix,
)
from support.handmade import looped_program, small_nnet, small_program

NNET = small_nnet()


@pytest.fixture
def p():
    return small_program(NNET)


def position(p, cls, which=0):
    return [i for i, c in enumerate(p.computation.commands) if type(c) is cls][which]


def change(p, cls, which=0, **operands):
    at = position(p, cls, which)
    p.computation.commands[at] = p.computation.commands[at].replace(**operands)
    return at


def insert_after(p, cls, *commands, which=0):
    at = position(p, cls, which) + 1
    p.computation.commands[at:at] = commands
    return at


def rejected(p, pattern, **options):
    with pytest.raises(ProgramError, match=pattern) as info:
        check_computation(p.computation, NNET, **options)
    assert "\n" not in str(info.value)


def test_sound_program(p):
    check_computation(p.computation, NNET, check_rewrite=True)


# -- operands


def test_submatrix_out_of_range(p):
    at = change(p, SetConst, submatrix=99)
    rejected(p, rf"submatrix 99 is not in 1\.\.10 in command c{at}: SetConst")


def test_component_out_of_range(p):
    change(p, Propagate, component=17)
    rejected(p, "component 17 is not in")


def test_empty_output(p):
    change(p, Propagate, output=0)
    rejected(p, "output 0 is not in 1")


def test_allocating_part_of_a_matrix(p):
    part = p.computation.new_submatrix(p["relu"], 0, 2)
    change(p, AllocMatrix, 1, submatrix=part)
    rejected(p, "submatrix is not the whole of a matrix")


def test_wrong_dimension(p):
    change(p, Propagate, 0, input=p["relu"])
    rejected(p, "input has 3 columns, the component's dimension is 4")


def test_wrong_rows(p):
    short = p.computation.new_submatrix(p["affine"], 0, 4)
    change(p, Propagate, 1, input=short)
    rejected(p, "input has 4 rows, output 5")


def test_copy_of_different_sizes(p):
    insert_after(p, Propagate, MatrixCopy(p["affine"], p["input"]))
    rejected(p, "sizes 5 x 3 and 5 x 4 differ")


def test_copy_to_itself(p):
    insert_after(p, Propagate, MatrixCopy(p["affine"], p["affine"]))
    rejected(p, "copy of a submatrix to itself")


def test_scaling_in_place_is_allowed(p):
    insert_after(p, Propagate, MatrixCopy(p["affine"], p["affine"], 0.5))
    check_computation(p.computation, NNET)


def test_overlapping_copy(p):
    c = p.computation
    a, b = c.new_submatrix(p["affine"], 0, 3), c.new_submatrix(p["affine"], 1, 3)
    insert_after(p, Propagate, MatrixAdd(a, b))
    rejected(p, "source and destination overlap")


ROW_LISTS = [
    ([0, 1], "2 row indexes for 5 rows"),
    ([0, 1, 2, 3, 5], r"row index outside -1\.\.4"),
    ([0, 1, 2, 3, -2], "row index outside"),
]


@pytest.mark.parametrize(("rows", "message"), ROW_LISTS)
def test_bad_row_indexes(p, rows, message):
    insert_after(
        p, Propagate, CopyRows(p["relu"], p["affine"], p.computation.new_indexes(rows)), which=1
    )
    rejected(p, message)


PAIRS = [
    ([[2, 0]] * 4, "4 pairs for 5 rows"),
    ([[2, 5]] * 5, "row outside submatrix 2"),
    ([[2, -1]] * 5, "neither"),
    ([[1, 0]] * 5, "4 columns do not fit 3"),
    ([[77, 0]] * 5, "there is no submatrix 77"),
    ([[3, 0]] * 5, "overlap"),
]


@pytest.mark.parametrize(("pairs", "message"), PAIRS)
def test_bad_pairs(p, pairs, message):
    insert_after(
        p,
        Propagate,
        AddRowsMulti(p["relu"], p.computation.new_indexes_multi(pairs)),
        which=1,
    )
    rejected(p, message)


@pytest.mark.parametrize("cls", [AddToRowsMulti, CopyToRowsMulti])
def test_row_written_twice(p, cls):
    c = p.computation
    part = c.new_submatrix(p["affine"], 2, 3)
    pairs = c.new_indexes_multi([[2, 0], [2, 2], [-1, -1], [part, 0], [2, 4]])
    insert_after(p, Propagate, cls(p["relu"], pairs), which=1)
    rejected(p, "row 2 of m2 is written twice")


@pytest.mark.parametrize("span", [[0, 6], [3, 3], [-1, 2], [4, 2]])
def test_bad_row_range(p, span):
    ranges = p.computation.new_indexes_ranges([[0, 5], [-1, -1], [1, 2], [0, 1], span])
    insert_after(p, Propagate, AddRowRanges(p["relu"], p["affine"], ranges), which=1)
    rejected(p, "range")


def test_goto_without_label(p):
    p.computation.commands.append(GotoLabel(0))
    rejected(p, "no label at c0")


# -- aliasing


def test_propagate_in_place_where_not_allowed(p):
    insert_after(p, Propagate, Propagate(p.component("square"), 0, p["affine"], p["affine"]))
    rejected(p, "the component cannot propagate in place")


def test_propagate_in_place_where_allowed(p):
    insert_after(p, Propagate, Propagate(p.component("relu"), 0, p["affine"], p["affine"]))
    check_computation(p.computation, NNET)


def test_partly_overlapping_propagate(p):
    c = p.computation
    big = c.new_matrix(8, 3)
    a, b = c.new_submatrix(big, 0, 5), c.new_submatrix(big, 2, 5)
    change(p, Propagate, 1, input=a, output=b)
    rejected(p, "input and output overlap")


def test_backprop_in_place_where_not_allowed(p):
    backprop = Backprop(p.component("square"), 0, p["affine"], 0, p["drelu"], p["drelu"])
    insert_after(p, Backprop, backprop, which=1)
    rejected(p, "the component cannot backprop in place")


def test_backprop_in_place_where_allowed(p):
    change(p, Backprop, 1, in_deriv=p["dnorm"])
    insert_after(p, Backprop, MatrixCopy(p["drelu"], p["dnorm"]), which=1)
    check_computation(p.computation, NNET)


def test_input_derivative_over_a_value_that_is_read(p):
    change(p, Backprop, 2, in_deriv=p["relu"])
    rejected(p, "overlaps a value that backprop reads")


# -- memory


def test_read_before_write(p):
    at = position(p, SetConst, 0)
    del p.computation.commands[at : at + 2]
    rejected(p, r"m2.* is read before it is written|m2 is never")


def test_undefined_part(p):
    c = p.computation
    part = c.new_submatrix(p["affine"], 0, 4)
    at = position(p, Propagate, 0)
    shorter = c.new_submatrix(p["input"], 0, 4)
    c.commands[at] = c.commands[at].replace(input=shorter, output=part)
    del c.commands[position(p, SetConst, 0)]
    rejected(p, r"m2\(4:4,:\) is read before it is written")


def test_use_after_free(p):
    insert_after(p, Propagate, DeallocMatrix(p["input"]), which=0)
    del p.computation.commands[position(p, DeallocMatrix, 1)]
    rejected(p, "m1 is used after it was deallocated in command c")


def test_use_before_allocation(p):
    c = p.computation
    alloc = c.commands.pop(position(p, AllocMatrix, 0))
    c.commands.insert(position(p, Propagate, 0) + 1, alloc)
    rejected(p, "m2 is used before it is allocated")


def test_missing_allocation(p):
    del p.computation.commands[position(p, AllocMatrix, 0)]
    rejected(p, "m2 is never allocated")


def test_double_allocation(p):
    insert_after(p, AllocMatrix, AllocMatrix(p["affine"]))
    rejected(p, "m2 is allocated twice")


def test_double_free(p):
    p.computation.commands.append(DeallocMatrix(p["affine"]))
    rejected(p, "m2 is deallocated twice")


def test_leak(p):
    del p.computation.commands[position(p, DeallocMatrix, 1)]
    rejected(p, "m2 is never deallocated")


def test_swap_of_a_matrix_that_lives_already(p):
    p.matrix("spare", 5, 3)
    p.computation.matrix_debug_info.append(p.computation.matrix_debug_info[2])
    insert_after(p, Propagate, SwapMatrix(p["affine"], p["spare"]))
    rejected(p, "m2 is allocated twice")


def test_rewriting_is_noticed_only_if_asked(p):
    insert_after(p, Propagate, SetConst(p["affine"], 0.0), which=1)
    check_computation(p.computation, NNET)
    rejected(p, "m2 is modified after being read", check_rewrite=True)


# -- compression


def compressed(p, value_range=0.0):
    insert_after(p, Propagate, CompressMatrix(p["relu"], 2, False, value_range), which=2)
    insert_after(p, AcceptInput, DecompressMatrix(p["relu"]), which=1)


def test_compression_between_its_uses(p):
    compressed(p)
    check_computation(p.computation, NNET)


def test_what_was_decompressed_with_the_rest_may_be_overwritten(p):
    compressed(p, value_range=1.0)
    insert_after(p, DecompressMatrix, SetConst(p["relu"]))
    check_computation(p.computation, NNET)


def test_use_while_compressed(p):
    compressed(p)
    insert_after(p, CompressMatrix, SetConst(p["relu"]))
    rejected(p, "used before it is decompressed")


def test_decompression_of_what_was_not_compressed(p):
    compressed(p)
    del p.computation.commands[position(p, CompressMatrix)]
    rejected(p, "decompressed that was not compressed")


def test_signs_only_for_more_than_a_relu(p):
    insert_after(p, Propagate, CompressMatrix(p["norm"], 2, False, 0.0), which=3)
    insert_after(p, AcceptInput, DecompressMatrix(p["norm"]), which=1)
    rejected(p, "only signs are kept")


# -- order


def test_backprop_before_the_marker(p):
    del p.computation.commands[position(p, NoOperationMarker)]
    rejected(p, "before the end of the forward commands")


def test_propagate_after_the_marker_before_any_backprop(p):
    c = p.computation
    c.commands.insert(position(p, NoOperationMarker) + 1, c.commands[position(p, Propagate, 0)])
    rejected(p, "propagation after the end of the forward commands")


def test_propagate_after_backprop(p):
    c = p.computation
    c.commands.insert(position(p, Backprop, 3) + 1, c.commands[position(p, Propagate, 0)])
    rejected(p, "propagation after backpropagation")


def test_memo_that_nobody_uses(p):
    change(p, Backprop, 1, memo=0)
    rejected(p, "needs its memo")


def test_memo_that_nobody_made(p):
    change(p, Propagate, 2, memo=0)
    rejected(p, "memo 1 was not made")


def test_memo_of_a_component_without_one(p):
    change(p, Propagate, 0, memo=3)
    rejected(p, "keeps no memo")


def test_same_input_twice(p):
    insert_after(p, ProvideOutput, p.computation.commands[position(p, ProvideOutput)])
    rejected(p, "twice in one segment")


def test_input_in_the_midst_of_work(p):
    c = p.computation
    c.commands.insert(position(p, Propagate) + 1, AcceptInput(p["doutput"], p.node("output")))
    del c.commands[position(p, AcceptInput, 2)]
    rejected(p, "has worked already")


def test_work_after_the_output(p):
    insert_after(p, ProvideOutput, MatrixCopy(p["affine"], p["relu"]))
    rejected(p, "work after c13 gave an output")


# -- debug information and request


def test_debug_info_of_wrong_size(p):
    info = p.computation.matrix_debug_info
    info[2] = info[2]._replace(nodes=info[2].nodes[:3], indexes=info[2].indexes[:3])
    rejected(p, "debug information of m2 has 3 rows, the matrix 5")


def test_debug_info_of_a_node_of_another_dimension(p):
    """As in a program for a network that has the same commands, but nodes in another order."""
    info = p.computation.matrix_debug_info
    dims = [NNET.dim(node) for node in range(NNET.num_nodes)]
    cols = p.computation.matrices[2].num_cols
    other = next(node for node, dim in enumerate(dims) if dim != cols)
    info[2] = info[2]._replace(nodes=np.full_like(info[2].nodes, other))
    rejected(p, f"m2 has {cols} columns for node '{NNET.node_names[other]}'")


def request(rows=5, input_deriv=True):
    rows = make_indexes(0, np.arange(rows))
    return ComputationRequest(
        [IoSpecification("input", rows, input_deriv)], [IoSpecification("output", rows, True)]
    )


def test_request_is_met(p):
    check_computation(p.computation, NNET, request())


def test_request_for_other_rows(p):
    rejected(p, "4 rows were asked for", request=request(4))


def test_missing_output(p):
    del p.computation.commands[position(p, ProvideOutput, 0)]
    rejected(p, "node 'output' is never provided|m5 is never", request=request())


def test_unasked_output(p):
    rejected(p, "not asked for", request=request(input_deriv=False))


# -- loops


def test_looped_program():
    check_computation(looped_program(NNET), NNET)


def test_looped_program_that_forgets_its_state():
    c = looped_program(NNET)
    del c.commands[-2]
    with pytest.raises(ProgramError, match="m2 is alive only at the loop's begin"):
        check_computation(c, NNET)


def test_goto_to_something_else():
    c = looped_program(NNET)
    c.commands[-1] = GotoLabel(5)
    with pytest.raises(ProgramError, match="no label at c5"):
        check_computation(c, NNET)


def test_speed(p):
    nnet, c = NNET, p.computation
    for _ in range(80):  # 300 commands and more
        s = c.new_matrix(5, 3)
        c.commands[1:1] = [AllocMatrix(s), SetConst(s), MatrixAdd(s, s), DeallocMatrix(s)]
        c.commands[3] = MatrixCopy(s, s, 2.0)
        c.matrix_debug_info.append(c.matrix_debug_info[2])
    assert len(c.commands) > 300
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        check_computation(c, nnet)
        best = min(best, time.process_time() - start)
    assert best < 0.1  # a few milliseconds on an idle machine
