"""Analysis against the plainest evaluation: element by element, command by command."""

import numpy as np
import pytest

from nnet3tools.errors import ProgramError
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import (
    AllocMatrix,
    DeallocMatrix,
    MatrixAdd,
    MatrixCopy,
    SetConst,
    SwapMatrix,
)
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import AccessType
from nnet3tools.program.variables import Variables
from support.handmade import small_nnet, small_program


def random_computation(rng, num_commands=40):
    """Matrices, random blocks of them, and copies and sums among blocks of equal size."""
    c = Computation()
    for _ in range(4):
        c.new_matrix(int(rng.integers(2, 9)), int(rng.integers(2, 9)))
    for s in list(range(1, 5)) * 3:
        info = c.submatrices[s]
        row, col = int(rng.integers(info.num_rows)), int(rng.integers(info.num_cols))
        c.new_submatrix(
            s,
            row,
            int(rng.integers(1, info.num_rows - row + 1)),
            col,
            int(rng.integers(1, info.num_cols - col + 1)),
        )
    for _ in range(num_commands):
        a, b = rng.integers(1, len(c.submatrices), size=2).tolist()
        c.commands.append([SetConst(a), MatrixCopy(a, b), MatrixAdd(a, b)][int(rng.integers(3))])
    return c


def cells(computation, submatrix):
    """The elements of a submatrix."""
    m, r, h, k, w = computation.submatrices[submatrix]
    return {(m, i, j) for i in range(r, r + h) for j in range(k, k + w)}


def block_cells(info):
    m, r, h, k, w = info
    return {(m, i, j) for i in range(r, r + h) for j in range(k, k + w)}


@pytest.mark.parametrize("seed", range(8))
def test_variables_partition_matrices_and_make_up_submatrices(seed):
    c = random_computation(np.random.default_rng(seed))
    variables = Variables(c)
    blocks = [block_cells(variables.block(v)) for v in range(variables.num_variables)]
    everything = set().union(*(cells(c, s) for s in range(1, 5)))
    assert sum(map(len, blocks)) == len(everything)
    assert set().union(*blocks) == everything
    for s in range(1, len(c.submatrices)):
        assert set().union(*(blocks[v] for v in variables.of_submatrix(s))) == cells(c, s)
    for m in range(1, 5):
        assert {v for v in range(len(blocks)) if variables.matrix_of[v] == m} == set(
            variables.of_matrix(m)
        )


@pytest.mark.parametrize("seed", range(4))
def test_variables_are_as_coarse_as_row_and_column_cuts_allow(seed):
    c = random_computation(np.random.default_rng(seed))
    variables = Variables(c)
    for m in range(1, 5):
        subs = [s for s in c.submatrices if s.matrix_index == m]
        rows = {x for s in subs for x in (s.row_offset, s.row_offset + s.num_rows)}
        cols = {x for s in subs for x in (s.col_offset, s.col_offset + s.num_cols)}
        assert len(variables.of_matrix(m)) == (len(rows) - 1) * (len(cols) - 1)


@pytest.mark.parametrize("seed", range(8))
def test_accesses_are_those_of_the_elements(seed):
    c = random_computation(np.random.default_rng(seed))
    analysis = Analysis(c, None)
    expected = {}
    for i, command in enumerate(c.commands):
        for access in command.accesses(c, None):
            for cell in cells(c, access.submatrix):
                kinds = expected.setdefault(cell, {})
                kinds[i] = kinds.get(i, AccessType(0)) | access.type
    for v in range(analysis.variables.num_variables):
        commands, kinds = analysis.variable_accesses.of_item(v)
        for cell in block_cells(analysis.variables.block(v)):
            assert dict(zip(commands.tolist(), kinds.tolist(), strict=True)) == expected.get(
                cell, {}
            )
    first, last = analysis.variable_accesses.first(-7), analysis.variable_accesses.last(-7)
    for v in range(analysis.variables.num_variables):
        commands = analysis.variable_accesses.of_item(v)[0].tolist()
        assert (first[v], last[v]) == ((commands[0], commands[-1]) if commands else (-7, -7))


def test_writing_a_part_reads_and_writes_the_matrix():
    c = Computation()
    whole = c.new_matrix(4, 4)
    part = c.new_submatrix(whole, 0, 2)
    c.commands = [SetConst(whole), SetConst(part)]
    analysis = Analysis(c, None)
    assert analysis.matrix_accesses.of_item(1)[1].tolist() == [
        AccessType.WRITE,
        AccessType.READ_WRITE,
    ]
    assert analysis.variable_accesses.of_item(0)[1].tolist() == [AccessType.WRITE, AccessType.WRITE]
    assert analysis.variables.describe(1, c) == "m1(2:3,:)"


def test_lifetimes():
    nnet = small_nnet()
    p = small_program(nnet)
    a = Analysis(p.computation, nnet)
    text = p.computation.commands
    assert isinstance(text[a.lifetimes.allocate_command[2]], AllocMatrix)
    assert isinstance(text[a.lifetimes.deallocate_command[2]], DeallocMatrix)
    assert a.lifetimes.allocate_command[1] == 0  # an input comes into being when it is accepted
    assert a.lifetimes.is_input.nonzero()[0].tolist() == [1, 10]
    assert a.lifetimes.is_output.nonzero()[0].tolist() == [5, 6]


def test_swap_hands_a_life_over():
    c = Computation()
    a, b = c.new_matrix(2, 2), c.new_matrix(2, 2)
    c.commands = [AllocMatrix(b), SetConst(b), SwapMatrix(a, b), SetConst(a), DeallocMatrix(a)]
    analysis = Analysis(c, None)
    assert analysis.lifetimes.allocate_command.tolist() == [-1, 2, 0]
    assert analysis.lifetimes.deallocate_command.tolist() == [-1, 4, 2]


def test_double_allocation_is_an_error():
    c = Computation()
    a = c.new_matrix(2, 2)
    c.commands = [AllocMatrix(a), AllocMatrix(a)]
    with pytest.raises(ProgramError, match="c1: m1 is allocated twice"):
        _ = Analysis(c, None).lifetimes


def test_no_commands_no_accesses():
    c = Computation()
    c.new_matrix(2, 2)
    analysis = Analysis(c, None)
    assert analysis.variable_accesses.of_item(0)[0].size == 0
