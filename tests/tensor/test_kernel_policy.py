"""The table of KernelPolicy: each cell, run; and its copy in docs/design.md."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.executor.replay import Replayer
from nnet3tools.tensor import recording
from nnet3tools.tensor.cpu import choice
from nnet3tools.tensor.cpu.choice import CpuKernels
from nnet3tools.tensor.element import Element
from nnet3tools.tensor.kernel_policy import (
    MANY_FIRST_RUNS,
    TABLE,
    Engine,
    KernelPolicy,
    Occasion,
    Platform,
    RunState,
)
from nnet3tools.tensor.workspace import Workspace
from support.native_kernels import needs_compiler

NUM_RUNS_BEFORE = {
    Occasion.FIRST: 0,
    Occasion.FIRST_OF_MANY: 0,
    Occasion.SECOND: 1,
    Occasion.NEW_OUTCOMES: 2,
    Occasion.LATER: 2,
    Occasion.HOST_WORK: 4,
}
LATE = (Occasion.NEW_OUTCOMES, Occasion.LATER, Occasion.HOST_WORK)
"""By then recordings are complete, and the arena is a used one."""

_doubled = tensor.element("_1 = 2 * _2")


class Step:
    """A step with one formula and one decision, which notes how it runs."""

    def __init__(self) -> None:
        self.x, self.out = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
        self.outcome, self.has_host_work = 0, False
        self.state = RunState.REPLAY

    def __call__(self) -> None:
        recorded = recording.state.call_recorder is not None
        self.state = RunState.RECORD if recorded else RunState.LIVE
        recording.decide(lambda: self.outcome)
        if self.has_host_work:
            recording.not_capturable()
        _doubled(self.out, self.x)


@pytest.fixture
def by_numpy(monkeypatch):
    """A list that grows whenever a formula runs without a kernel."""
    found = []
    bind = Element.bind

    def noted(self, *operands):
        run = bind(self, *operands)
        return lambda: (found.append(1), run())[1]

    monkeypatch.setattr(Element, "bind", noted)
    return found


def use(workspace):
    """Make an arena a used one, in which the formula's kernel is known."""
    for key in range(MANY_FIRST_RUNS + 1):
        Replayer(workspace).run(key, Step())


@needs_compiler
@pytest.mark.parametrize("platform", Platform)
@pytest.mark.parametrize("occasion", Occasion)
def test_each_cell_of_the_table_is_what_happens(occasion, platform, by_numpy, monkeypatch):
    numpy = platform is Platform.NUMPY
    monkeypatch.setattr(choice, "_chosen", CpuKernels.NUMPY if numpy else CpuKernels.NATIVE)
    workspace, step, graphs = Workspace(), Step(), []

    def capture(work, on_side_stream=False):
        return lambda: (graphs.append(1), work())[1]

    on_gpu = platform is Platform.GPU
    if platform is Platform.USED_ARENA:
        use(workspace)
    repeats = occasion is Occasion.FIRST_OF_MANY
    replayer = Replayer(workspace, capture if on_gpu else None, repeats)
    step.has_host_work = occasion is Occasion.HOST_WORK
    for _ in range(NUM_RUNS_BEFORE[occasion]):
        replayer.run("step", step)
    step.outcome = int(occasion is Occasion.NEW_OUTCOMES)
    step.state = RunState.REPLAY
    step.out.fill(0.0)
    by_numpy.clear()
    replayer.run("step", step)
    assert (step.out == 2.0).all()
    rule = TABLE[occasion][list(Platform).index(platform)]
    if not (platform is Platform.NEW_ARENA and occasion in LATE):
        assert workspace.policy.platform(on_gpu) is platform
    assert step.state is rule.state
    if on_gpu:
        assert bool(graphs) == (rule.engine is Engine.CUDA_GRAPH)
    elif not (platform is Platform.NEW_ARENA and occasion is Occasion.NEW_OUTCOMES):
        assert bool(by_numpy) == (rule.engine is Engine.NUMPY)


def test_kernels_for_live_runs_are_offered_by_rules_that_say_so_alone():
    policy = KernelPolicy()
    policy.known_kernels = known = object()
    for rules in TABLE.values():
        for rule in rules:
            offered = policy.kernels_for(rule)
            assert offered is (known if rule.engine is Engine.KNOWN_KERNELS else None)


def test_the_design_prints_the_table():
    design = Path(__file__).parents[2] / "docs" / "design.md"
    rows = [("run", *(platform.value for platform in Platform))]
    for occasion, rules in TABLE.items():
        cells = (f"{rule.state.value}, {rule.engine.value}" for rule in rules)
        rows.append((occasion.value, *cells))
    for row in rows:
        assert f"| {' | '.join(row)} |" in design.read_text()
