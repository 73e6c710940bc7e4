"""Joined jobs give the numbers of the jobs by themselves, and never change what may not change."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor.call import Call
from nnet3tools.tensor.cpu.calls import jobs_of
from nnet3tools.tensor.cpu.fusion import fused
from nnet3tools.tensor.cpu.jobs import CompiledJobs
from nnet3tools.tensor.number import Number
from support.native_kernels import needs_compiler, unexpected

pytestmark = needs_compiler

ROWS, COLUMNS = 5, 37


def jobs(formula, *operands):
    found = jobs_of(Call.of(tensor.element(formula), *operands))
    assert found is not None
    return found


def arrays(count, shape=(ROWS, COLUMNS), seed=0):
    return list(np.random.default_rng(seed).normal(size=(count, *shape)).astype(np.float32))


def number_of_jobs(*lists):
    return len(fused([job for some in lists for job in some]))


def test_what_one_writes_and_the_next_reads_is_one_job():
    a, b, c, d = arrays(4)
    assert number_of_jobs(jobs("_1 = _2 * 0.66", a, b), jobs("_1 += _2", a, c)) == 1
    chain = jobs("_1 = _2 * 0.5", a, b), jobs("_1 += _2", a, c), jobs("_1 = _2", d, a)
    assert number_of_jobs(*chain) == 1


def test_a_job_may_pass_others_that_share_nothing_with_it():
    a, b = arrays(2)
    row, more = arrays(2, (COLUMNS,))
    rectified, small = jobs("_1 = max(_2, 0)", a, b), jobs("_1 = _2 + 1", row, more)
    repaired = jobs("_1 += _2 * _3", a, row, 0.1)
    first, last = fused([*rectified, *small, *repaired])
    assert (first, last.steps) == (small[0], ROWS), "the second reads the row: the first waits"
    assert number_of_jobs(rectified, jobs("_1 = _2", row, a[0]), repaired) == 3


@pytest.mark.parametrize("hazard", ["shifted", "columns", "reversed", "row", "other type"])
def test_memory_shared_askew_keeps_jobs_apart(hazard):
    wide, other = arrays(2, (ROWS + 1, COLUMNS + 1))
    target = wide[:-1, :-1]
    seen = {
        "shifted": wide[1:, :-1],
        "columns": wide[:-1, 1:],
        "reversed": wide[:-1, :-1][::-1],
        "row": wide[2, :-1],
        "other type": wide.view(np.int32)[:-1, :-1],
    }[hazard]
    out = np.empty((ROWS, COLUMNS), np.float32)
    write, read = jobs("_1 = _2", target, other[1:, 1:]), jobs("_1 = _2 + 1", out, seen)
    assert number_of_jobs(write, read) == number_of_jobs(read, write) == 2


def test_a_number_that_was_just_computed_is_not_looked_up_before():
    value, out, source = Number(np.ones(1)), np.empty(1), np.ones(1)
    write, read = jobs("_1 = _2 * 3", value.array, source), jobs("_1 = _2 * _3", out, source, value)
    assert number_of_jobs(write, read) == number_of_jobs(read, write) == 2


def test_what_is_not_a_formula_is_passed_by_nothing():
    a, b, c = arrays(3)
    scale, shift = jobs("_1 = _2 * 2", a, b), jobs("_1 = _2 + 1", c, b)
    rows = jobs_of(Call.of(tensor.copy_rows, np.empty_like(a), b, np.arange(ROWS)))
    assert number_of_jobs(scale, shift) == 1
    assert number_of_jobs(scale, rows, shift) == 3


def test_what_is_stored_in_few_digits_is_read_in_few_digits():
    out, mean = np.zeros((ROWS, COLUMNS)), np.zeros((ROWS, COLUMNS), np.float32)
    given = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    both = jobs("_1 = float32(_2)", mean, given), jobs("_1 = _2", out, mean)
    assert number_of_jobs(*both) == 1
    CompiledJobs([job for some in both for job in some], lambda: unexpected)()
    np.testing.assert_array_equal(out, given.astype(np.float32))


FORMULAS = (
    ("_1 = _2 * 0.66", 2), ("_1 += _2", 2), ("_1 = _2", 2), ("_1 = max(_2, 0)", 2),
    ("_1 = where(_2 > 0, _3, 0)", 3), ("_1 += _2 * _3", 3), ("_1 = _1 * _2 + 0.1", 2),
    ("_1 = _2 - _3; _2 = _1", 3), ("_1 = 0.25", 1),
)  # fmt: skip


class Case:
    """A list of random formulas over few operands, some of which share memory."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.memory = self.rng.normal(size=(3, ROWS + 2, COLUMNS + 3)).astype(np.float32)
        self.calls = [self.call() for _ in range(6)]

    def call(self):
        formula, count = FORMULAS[self.rng.integers(len(FORMULAS))]
        targets = 2 if ";" in formula else 1
        return formula, [self.place(k < targets) for k in range(count)]

    def place(self, is_target):
        """Where an operand is: matrix, first row and column; row None: one row for all."""
        matrix, row, column = self.rng.integers([3, 2, 2])
        whole = is_target or self.rng.integers(5)
        return matrix, (row if whole else None), column

    def operands(self, memory, places):
        found = []
        for matrix, row, column in places:
            columns = slice(column, column + COLUMNS)
            whole = memory[matrix, row : row + ROWS, columns] if row is not None else None
            found.append(memory[matrix, 0, columns] if whole is None else whole)
        return found

    def series(self, memory):
        """The jobs of all calls; calls that are left to NumPy are left out."""
        lists = [
            jobs_of(Call.of(tensor.element(formula), *self.operands(memory, places)))
            for formula, places in self.calls
        ]
        return [some for some in lists if some is not None]


def test_random_lists_give_the_same_bits_joined_and_apart():
    cases = [Case(seed) for seed in range(60)]
    joined, apart, saved = [], [], 0
    for case in cases:
        lists = case.series(case.memory)
        whole = [job for some in lists for job in some]
        saved += len(whole) - len(fused(whole))
        other = case.memory.copy()
        joined.append((CompiledJobs(whole, lambda: unexpected), case.memory))
        apart.append(
            ([CompiledJobs(some, lambda: unexpected) for some in case.series(other)], other)
        )
    assert saved > 60
    for (run, found), (runs, expected) in zip(joined, apart, strict=True):
        run()
        for one in runs:
            one()
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))
