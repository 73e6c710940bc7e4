"""The checker: finds faulty programs before they run.

It checks all that Kaldi's ComputationChecker (nnet-analyze.cc) checks, and more. Command classes
declare operand ranges; their `problem` tests sizes and aliasing. Order and memory are checked by
the analysis.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.analysis import Analyst
from nnet3tools.program.commands import (
    AcceptInput,
    Backprop,
    CompressMatrix,
    DeallocMatrix,
    DecompressMatrix,
    GotoLabel,
    ProvideOutput,
    SetConst,
    SwapMatrix,
)
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import AccessType
from nnet3tools.program.order_checker import OrderChecker

_COMPRESSION = (CompressMatrix, DecompressMatrix)

_MIN_PROPORTION = 0.8
"""Rows after this share of a matrix's rows may be unused, because of extend_matrices."""


def check_computation(
    computation: Computation,
    nnet: Nnet,
    request: ComputationRequest | None = None,
    *,
    check_rewrite: bool = False,
    check_unused: bool = True,
    analyst: Analyst | None = None,
) -> None:
    """Raise ProgramError, naming a command, if the program has a fault.

    With a request, its inputs and outputs are compared, too. `check_rewrite` forbids writing a
    variable (block of a matrix) after it was read, which holds before optimization only.
    `check_unused` forbids variables that no command uses. `analyst` shares the analysis with
    passes.
    """
    looped = bool(computation.commands) and isinstance(computation.commands[-1], GotoLabel)
    analyst = analyst or Analyst(nnet)
    checker = Checker(analyst.analyze(computation), nnet)
    checker.check_operands()
    if looped:
        checker.check_loop()
        checker = Checker(analyst.analyze(_without_carry(computation)), nnet)
    checker.check_lifetimes()
    checker.check_memory(all_freed=not looped)
    checker.check_undefined(check_unused and not looped)
    checker.check_lost()
    checker.check_compression()
    checker.check_order()
    checker.check_exchange()
    checker.check_debug_info()
    if check_rewrite:
        checker.check_rewrite()
    if request is not None:
        checker.check_request(request)


def _without_carry(computation: Computation) -> Computation:
    """A copy of a looped program with the swaps before its GotoLabel replaced by deallocations.

    The swaps pass matrices to the next round, and would count as second allocations.
    """
    out = computation.copy()
    last = len(out.commands) - 2
    while last >= 0 and isinstance(command := out.commands[last], SwapMatrix):
        out.commands[last] = DeallocMatrix(command.b)
        last -= 1
    return out


class Checker(OrderChecker):
    """Checks the lifetimes and accesses of one program; methods raise ProgramError at a fault."""

    def check_loop(self) -> None:
        """ProgramError unless the same matrices live at a loop's begin and end, except outputs."""
        commands = self.computation.commands
        goto = commands[-1]
        assert isinstance(goto, GotoLabel)
        alive: set[int] = set()
        at_label: set[int] = set()
        for c, command in enumerate(commands):
            if command.FREES is not None:
                alive.discard(self.computation.matrix_of(getattr(command, command.FREES)))
            if command.ALLOCATES is not None:
                alive.add(self.computation.matrix_of(getattr(command, command.ALLOCATES)))
            elif isinstance(command, AcceptInput):
                alive.add(self.computation.matrix_of(command.submatrix))
            if c == goto.label:
                at_label = set(alive)
        outputs = {
            self.computation.matrix_of(c.submatrix)
            for c in commands[goto.label :]
            if isinstance(c, ProvideOutput)
        }
        if wrong := (alive ^ at_label) - (outputs - at_label):
            matrix = min(wrong)
            when = "only at the loop's end" if matrix in alive else "only at the loop's begin"
            self.fail(f"m{matrix} is alive {when}", len(commands) - 1)

    def check_lifetimes(self) -> None:
        """Raise ProgramError if a matrix is allocated, or freed, twice."""
        try:
            _ = self.analysis.lifetimes
        except ProgramError as error:
            raise ProgramError(f"broken program: {error}") from None

    def check_memory(self, all_freed: bool) -> None:
        """ProgramError unless each matrix is allocated, used, then freed or given to the user.

        Without `all_freed`, as in a loop, matrices may stay allocated at the end.
        """
        a, lifetimes = self.analysis, self.analysis.lifetimes
        num_commands = len(self.computation.commands)
        first = a.matrix_accesses.first(num_commands)
        last = a.matrix_accesses.last(-1)
        allocated, freed = lifetimes.allocate_command, lifetimes.deallocate_command
        faults = (
            (allocated < 0, "is never allocated", first),
            ((last < 0) & ~lifetimes.is_input, "is never used", allocated),
            (first < allocated, "is used before it is allocated", first),
            ((freed >= 0) & (last >= freed), "is used after it was deallocated", last),
            ((freed >= 0) & (freed <= allocated), "is deallocated before it is allocated", freed),
            (all_freed & (freed < 0) & ~lifetimes.is_output, "is never deallocated", last),
        )
        for bad, message, where in faults:
            if bad[1:].any():
                m = int(np.flatnonzero(bad[1:])[0]) + 1
                command = int(where[m])
                self.fail(f"m{m} {message}", command if 0 <= command < num_commands else None)

    def check_undefined(self, check_unused: bool) -> None:
        """ProgramError if a matrix block is read before a write or, with `check_unused`, unused."""
        accesses, variables = self.analysis.variable_accesses, self.analysis.variables
        offsets = accesses.offsets
        used = offsets[1:] > offsets[:-1]
        first_accesses = offsets[:-1][used]
        bad = np.flatnonzero(accesses.types[first_accesses] != AccessType.WRITE)
        for i in bad.tolist():
            # Undefined parts of a matrix may be compressed with the rest.
            command = int(accesses.commands[first_accesses[i]])
            if not isinstance(self.computation.commands[command], CompressMatrix):
                variable = int(np.flatnonzero(used)[i])
                self.fail(f"{self._describe(variable)} is read before it is written", command)
        if not check_unused:
            return
        for variable in np.flatnonzero(~used).tolist():
            block = variables.block(variable)
            matrix = self.computation.matrices[block.matrix_index]
            whole_rows = block.num_cols == matrix.num_cols
            if whole_rows or block.row_offset < _MIN_PROPORTION * matrix.num_rows:
                self.fail(f"{self._describe(variable)} is never used")

    def check_lost(self) -> None:
        """Raise ProgramError if a value, computed or of the user, is overwritten before it is read.

        Constants may be, and rows that are decompressed together with other rows of their matrix.
        """
        accesses = self.analysis.variable_accesses
        constant = self.are(SetConst, DecompressMatrix)
        writes = accesses.types == AccessType.WRITE
        same = np.ones(max(len(writes) - 1, 0), bool)
        ends = accesses.offsets[1:-1]
        same[ends[(ends > 0) & (ends < len(writes))] - 1] = False
        lost = np.flatnonzero(same & writes[:-1] & writes[1:] & ~constant[accesses.commands[:-1]])
        if len(lost):
            access = int(lost[0])
            variable = int(np.searchsorted(accesses.offsets, access, "right")) - 1
            first, command = accesses.commands[access : access + 2].tolist()
            self.fail(f"{self._describe(variable)} of c{first} is overwritten unread", command)

    def check_rewrite(self) -> None:
        """ProgramError if a variable (block of a matrix) is changed after a mere read of it."""
        accesses = self.analysis.variable_accesses
        owner = np.repeat(np.arange(len(accesses.offsets) - 1), np.diff(accesses.offsets))
        pure_reads = np.cumsum(accesses.types == AccessType.READ)
        before = np.concatenate([[0], pure_reads])[accesses.offsets[:-1]]
        recodes = self.are(*_COMPRESSION)
        writes = (accesses.types != AccessType.READ) & ~recodes[accesses.commands]
        bad = writes & (pure_reads > before[owner])
        if bad.any():
            access = int(np.flatnonzero(bad)[0])
            name = self._describe(int(owner[access]))
            self.fail(f"{name} is modified after being read", int(accesses.commands[access]))

    def check_compression(self) -> None:
        """Raise ProgramError if a command accesses a matrix that is compressed at that time."""
        commands = self.computation.commands
        for c in np.flatnonzero(self.are(*_COMPRESSION)).tolist():
            command = commands[c]
            assert isinstance(command, _COMPRESSION)
            touching, _ = self.analysis.matrix_accesses.of_item(
                self.computation.matrix_of(command.submatrix)
            )
            place = int(np.searchsorted(touching, c))
            if isinstance(command, DecompressMatrix):
                if place == 0 or not isinstance(commands[touching[place - 1]], CompressMatrix):
                    self.fail("a matrix is decompressed that was not compressed", c)
                continue
            if place + 1 == len(touching) or not isinstance(
                commands[touching[place + 1]], DecompressMatrix
            ):
                self.fail("a compressed matrix is used before it is decompressed", c)
            if command.range == 0.0:
                self._check_sign_only(c, touching[place + 2 :].tolist())

    def _check_sign_only(self, c: int, later: list[int]) -> None:
        """Raise ProgramError unless commands in `later` read only signs, all that `c` keeps."""
        commands = self.computation.commands
        for c_later in later:
            user = commands[c_later]
            if not (
                isinstance(user, Backprop)
                and self.nnet.component(user.component).backprop_reads_signs_only
            ):
                self.fail(f"only signs are kept of a matrix that c{c_later} needs", c)

    def _describe(self, variable: int) -> str:
        return self.analysis.variables.describe(variable, self.computation)
