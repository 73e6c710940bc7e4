"""Kernels in first runs: which calls they do, and that this hangs on the order of runs alone."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.executor.replay import Replayer
from nnet3tools.tensor.cpu import choice
from nnet3tools.tensor.cpu.calls import KnownKernels
from nnet3tools.tensor.cpu.choice import CpuKernels
from nnet3tools.tensor.cpu.library import library
from nnet3tools.tensor.kernel_policy import MANY_FIRST_RUNS
from nnet3tools.tensor.workspace import Workspace
from support.native_kernels import needs_compiler

pytestmark = needs_compiler

_squashed = tensor.element("_1 = tanh(_2) * exp(_3)")
_columns = tensor.aggregate("exp(_1)", "sum", axis=0)
_total = tensor.aggregate("exp(_1)", "sum", axis=None)


@pytest.fixture(autouse=True)
def _native(monkeypatch):
    monkeypatch.setattr(choice, "_chosen", CpuKernels.NATIVE)


@pytest.fixture
def done(monkeypatch):
    """Whether kernels did each call that they were asked about, in order."""
    found = []
    run_jobs = KnownKernels.run_jobs

    def noted(self, jobs):
        is_done = run_jobs(self, jobs)
        found.extend([is_done] if jobs is not None else [])
        return is_done

    monkeypatch.setattr(KnownKernels, "run_jobs", noted)
    return found


class Work:
    """Some formulas over so many rows, and what they gave."""

    def __init__(self, rows):
        rng = np.random.default_rng(rows)
        self.x = rng.normal(size=(rows, 33)).astype(np.float32)
        self.out, self.sums = np.zeros_like(self.x), np.zeros(33, np.float32)
        self.number = np.zeros(1)

    def __call__(self):
        _squashed(self.out, self.x, 0.5)
        tensor.add(self.out, self.x)
        with tensor.scratch(self.x.shape, like=self.x) as twice:
            tensor.softmax(twice, self.out)
            _columns(self.sums, twice)
        tensor.copy(self.number, np.ones(1))
        tensor.scale(self.number, _total(self.out))

    def expected(self):
        out = np.tanh(self.x.astype(np.float64)) * np.exp(0.5) + self.x
        shares = np.exp(out) / np.exp(out).sum(axis=1, keepdims=True)
        return out, np.exp(shares).sum(axis=0), np.exp(out).sum()

    def check(self):
        for found, right in zip((self.out, self.sums, self.number), self.expected(), strict=True):
            np.testing.assert_allclose(found, right, rtol=3e-6, atol=1e-6)

    def bytes(self):
        return b"".join(a.tobytes() for a in (self.out, self.sums, self.number))


def run_all(all_rows, workspace=None):
    """The results of pieces of work, each under the number of its rows."""
    replayer, results = Replayer(workspace or Workspace()), []
    made = {}
    for rows in all_rows:
        work = made.setdefault(rows, Work(rows))
        replayer.run(rows, work)
        work.check()
        results.append(work.bytes())
    return results


def test_many_first_runs_are_done_by_kernels_from_the_second_that_wants_them_on(done):
    count = MANY_FIRST_RUNS
    run_all(range(10, 10 + count - 1))
    assert not done  # a program or two that run once pay for nothing
    run_all(range(10, 10 + count + 3))
    formulas = 3  # two, and softmax; not the sum of everything, which is looked at
    assert done == [False] * formulas + [True] * 3 * formulas


def test_a_second_run_after_many_is_recorded_with_kernels_and_the_third_replayed(done):
    rows = [*range(10, 10 + MANY_FIRST_RUNS + 2), 11, 5, 5, 5, 5]
    results = run_all(rows)
    asked = len(done)
    assert all(done[-7:])  # three formulas live, four recorded: the sum stays in memory then
    assert results[-3] == results[-2] == results[-1]
    assert run_all(rows) == results
    assert len(done) == 2 * asked


def test_which_kernels_there_are_depends_on_the_runs_of_one_workspace_alone(done):
    rows = list(range(20, 20 + MANY_FIRST_RUNS + 2))
    first = run_all(rows)
    before = list(done)
    assert library.addresses([]) == {}  # by now this process has all that is wanted
    done.clear()
    assert run_all(rows) == first
    assert done == before


def test_without_a_compiler_numpy_does_it(done, monkeypatch):
    monkeypatch.setattr(library, "addresses", lambda names: None)
    rows = list(range(10, 10 + MANY_FIRST_RUNS + 3))
    run_all([*rows, rows[-1], rows[-1], rows[-1]])
    assert done
    assert not any(done)


def test_numpy_alone_is_not_touched(done, monkeypatch):
    monkeypatch.setattr(choice, "_chosen", CpuKernels.NUMPY)
    run_all([*range(10, 10 + MANY_FIRST_RUNS + 3), 10, 10, 10])
    assert not done
