"""Every kind of row operation loses the rows at its ends for which there is nothing to do."""

import numpy as np
import pytest

from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.snip_row_ops import snip_row_ops
from nnet3tools.program.commands import (
    AddRowsMulti,
    AddToRowsMulti,
    Command,
    CopyRowsMulti,
    CopyToRowsMulti,
)
from nnet3tools.program.computation import Computation

PAIRS = [(-1, -1), (2, 0), (-1, -1), (2, 3), (-1, -1), (-1, -1)]


def snipped(kind: type[Command]) -> tuple[Computation, Command]:
    """The program and its only command after the pass; rows 1 to 3 of six have work."""
    program = Computation()
    own, listed = program.new_matrix(6, 2), program.new_matrix(4, 2)
    pairs = [(listed if s > 0 else s, row) for s, row in PAIRS]
    operands = {kind.OWN: own, "indexes_multi": program.new_indexes_multi(np.array(pairs))}
    program.commands = [kind(**operands)]
    after = snip_row_ops(program, PassContext(Nnet()))
    return after, after.commands[0]


@pytest.mark.parametrize("kind", [AddRowsMulti, AddToRowsMulti, CopyToRowsMulti])
def test_rows_at_the_ends_are_cut(kind: type[Command]) -> None:
    program, command = snipped(kind)
    own = program.submatrices[getattr(command, kind.OWN)]
    assert (own.row_offset, own.num_rows) == (1, 3)
    rows = program.indexes_multi[command.indexes_multi]
    np.testing.assert_array_equal(rows[:, 1], [0, -1, 3])


def test_copies_keep_rows_that_become_zero() -> None:
    program, command = snipped(CopyRowsMulti)
    assert program.submatrices[command.dest].num_rows == 6
