"""KernelPolicy: decides how a step runs, and what computes its operators.

TABLE is the whole decision; docs/design.md prints it. Results are the same in each process, because
nothing in the table depends on the kernels that the process or its cache on disk happens to have.

Operators that give the same bits either way (random numbers, decompression of examples) are not
part of the table.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nnet3tools.tensor.call import Call
from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.registry import Operator, device_of

if TYPE_CHECKING:
    from nnet3tools.tensor.cpu.calls import KnownKernels


class RunState(enum.Enum):
    """Whether a command's Python code runs, runs and is recorded, or is replaced by a replay."""

    LIVE = "live"
    """Its Python code runs, and nothing is recorded."""
    RECORD = "record"
    """Its Python code runs, and a recording of its calls is made."""
    REPLAY = "replay"
    """A recording runs."""


class Engine(enum.Enum):
    """The kind of code that computes the operators of a step, the work of one command.

    COMPILED are the compiled kernels of all operators that have one, KNOWN_KERNELS only those that
    earlier runs asked for. NumPy computes the other operators.
    """

    NUMPY = "NumPy"
    KNOWN_KERNELS = "known kernels"
    COMPILED = "compiled kernels"
    CUDA = "CUDA kernels"
    CUDA_GRAPH = "a CUDA graph"


class Platform(enum.Enum):
    """The device and, on a CPU, whether kernels are used, and whether much has run in the memory.

    The memory of programs, an arena, is "used" after a replay, or after MANY_FIRST_RUNS first runs.
    """

    NUMPY = "CPU, NumPy"
    NEW_ARENA = "CPU, kernels, new arena"
    USED_ARENA = "CPU, kernels, used arena"
    GPU = "GPU"


class Occasion(enum.Enum):
    """Which run of a step (the work of a command) this is for its program: first, second, later.

    FIRST_OF_MANY is the first run in training. NEW_OUTCOMES: the step's choices (decisions) differ
    from those of all recorded runs. HOST_WORK: the step reads results on the host, or settings have
    changed since the forward pass.
    """

    FIRST = "first run"
    FIRST_OF_MANY = "first run, in training"
    SECOND = "second run"
    NEW_OUTCOMES = "later run, new outcomes"
    LATER = "later run, known outcomes"
    HOST_WORK = "step with work for the host"


class Rule(NamedTuple):
    """How a step runs: live, recorded or replayed (`state`), and what computes its operators."""

    state: RunState
    engine: Engine


_LIVE, _RECORD, _REPLAY = RunState.LIVE, RunState.RECORD, RunState.REPLAY
_NUMPY, _KNOWN, _COMPILED = Engine.NUMPY, Engine.KNOWN_KERNELS, Engine.COMPILED
_CUDA, _GRAPH = Engine.CUDA, Engine.CUDA_GRAPH

TABLE: dict[Occasion, tuple[Rule, Rule, Rule, Rule]] = {
    # NUMPY, NEW_ARENA, USED_ARENA, GPU
    Occasion.FIRST: (
        Rule(_LIVE, _NUMPY), Rule(_LIVE, _NUMPY), Rule(_LIVE, _KNOWN), Rule(_LIVE, _CUDA)),
    Occasion.FIRST_OF_MANY: (
        Rule(_RECORD, _NUMPY), Rule(_RECORD, _NUMPY), Rule(_RECORD, _KNOWN), Rule(_LIVE, _CUDA)),
    Occasion.SECOND: (
        Rule(_RECORD, _NUMPY), Rule(_RECORD, _NUMPY), Rule(_RECORD, _KNOWN), Rule(_RECORD, _CUDA)),
    Occasion.NEW_OUTCOMES: (
        Rule(_RECORD, _NUMPY), Rule(_RECORD, _NUMPY), Rule(_RECORD, _KNOWN), Rule(_RECORD, _CUDA)),
    Occasion.LATER: (
        Rule(_REPLAY, _NUMPY), Rule(_REPLAY, _COMPILED), Rule(_REPLAY, _COMPILED),
        Rule(_REPLAY, _GRAPH)),
    Occasion.HOST_WORK: (
        Rule(_LIVE, _NUMPY), Rule(_LIVE, _NUMPY), Rule(_LIVE, _NUMPY), Rule(_LIVE, _CUDA)),
}  # fmt: skip

MANY_FIRST_RUNS = 6
"""First runs that make an arena a used one: those of two minibatches of a training, and more.

A program that runs once or twice therefore does not wait for a compiler.
"""

_PLATFORMS = tuple(Platform)


class KernelPolicy:
    """Decides, for programs that share memory, how a command's step runs, and by which kernels."""

    def __init__(self) -> None:
        self.known_kernels: KnownKernels | None = None
        """None unless the arena is a used one."""
        self.num_first_runs = 0
        """Programs that have had a first run in this arena."""

    def platform(self, on_gpu: bool) -> Platform:
        """The device and, on a CPU, whether kernels are used and what ran before in this memory."""
        if on_gpu:
            return Platform.GPU
        if not are_native():
            return Platform.NUMPY
        return Platform.NEW_ARENA if self.known_kernels is None else Platform.USED_ARENA

    def rule(self, occasion: Occasion, on_gpu: bool = False) -> Rule:
        """The Rule (run state, engine) for a step; `occasion` says which of its runs it is."""
        return TABLE[occasion][_PLATFORMS.index(self.platform(on_gpu))]

    def kernels_for(self, rule: Rule) -> KnownKernels | None:
        """`known_kernels`, those that earlier runs used, if `rule` allows no others; else None."""
        return self.known_kernels if rule.engine is Engine.KNOWN_KERNELS else None

    def begin_run(self, will_replay: bool) -> None:
        """Begin a run on a CPU; allow kernels if it `will_replay`, or after many first runs."""
        is_used = will_replay or self.num_first_runs >= MANY_FIRST_RUNS
        if is_used and self.known_kernels is None and are_native():
            from nnet3tools.tensor.cpu.calls import KnownKernels  # late: it takes time

            self.known_kernels = KnownKernels()
        if self.known_kernels is not None:
            self.known_kernels.begin_run()

    def replay_steps(
        self, calls: Sequence[tuple[int, Call]]
    ) -> list[tuple[int, Callable[[], object]]]:
        """Pairs (command number, callable) that repeat recorded calls on a CPU, in the same order.

        Neighbouring calls that have compiled kernels become one callable.
        """
        if self.rule(Occasion.LATER).engine is not Engine.COMPILED:
            return [(c, call.bind()) for c, call in calls]
        from nnet3tools.tensor.cpu.calls import compiled_steps

        if self.known_kernels is not None:
            self.known_kernels.add(call for _, call in calls)
        return list(compiled_steps(calls))


def run_compiled(operator: Operator, *operands: Any) -> None:
    """Run one of LF-MMI's operators, on a CPU by its compiled kernel even if no replay is running.

    The supervision differs in each minibatch, so the operator is never recorded on a CPU. The
    kernels take a sixth (32 sequences) to a fourteenth (12) of NumPy's time for the denominator of
    benchmarks/denominator.py, and a third for its numerators.
    """
    if device_of(operands[0]) != "numpy" or not are_native():
        operator(*operands)
        return
    from nnet3tools.tensor.cpu.calls import compiled_steps

    for _, work in compiled_steps([(0, Call.of(operator, *operands))]):
        work()
