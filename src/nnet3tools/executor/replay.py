"""Replayer: runs the steps of programs live, records them, or replays recordings.

KernelPolicy (tensor/kernel_policy.py) has the table of when each of the three is done.

A live first run takes notes for the recording: the scratch memory that is needed, and for a GPU the
steps that draw random decisions or have work for the host. Recording takes a quarter longer.

On a CPU each step has its own recordings, one for each sequence of outcomes, so that their number
stays small; neighbouring steps without decisions become one list of calls. On a GPU, where a launch
costs more, steps are joined until they have a few random decisions, each of which may double the
number of recordings. Optional work (recording.optional) has flags instead and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial

from nnet3tools.executor.recorded_step import Capture, RecordedStep, Step, Steps
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.call import Call
from nnet3tools.tensor.kernel_policy import Occasion, Rule, RunState
from nnet3tools.tensor.recorder import PersistentObjects, Recorder
from nnet3tools.tensor.settings import settings_version
from nnet3tools.tensor.workspace import Workspace

_MAX_LIVE = 2
"""Live runs at most, if the first had work for the host that may not come again."""
_MAX_SEQUENCES = 64
"""Sequences that are kept of those whose keys name memory, which may have many layouts."""
_MAX_RANDOM = 3
"""Random decisions in joined steps, which give up to 2 ** 3 recordings."""


def device_capture() -> Capture:
    """The function that captures work as a CUDA graph on the present GPU."""
    from nnet3tools.tensor.cuda.fused_levels import capture

    return capture


@dataclass(frozen=True)
class SideStreamStep:
    """A callable whose work a GPU may do on a second stream, concurrently with other work."""

    work: Step

    def __call__(self) -> object:
        return self.work()


class Replayer:
    """Runs sequences of steps by their Python code at first, then replays their operator calls.

    A key names each sequence. `capture` makes a graph of work on a GPU; it is None on a CPU.
    Replayers that never run interleaved may share a workspace, the recordings' scratch memory.
    """

    def __init__(
        self, workspace: Workspace, capture: Capture | None = None, repeats: bool = False
    ) -> None:
        """Prepare to run, record and replay work; `workspace` has the scratch memory of recordings.

        `capture` makes a graph of work on a GPU; it is None on a CPU. With `repeats`, the work will
        probably run again, so a CPU may record the first run.
        """
        self._workspace, self._capture = workspace, capture
        may_record_first = repeats and capture is None and workspace.grows_in_place
        self._first = Occasion.FIRST_OF_MANY if may_record_first else Occasion.FIRST
        self._settings = settings_version()
        self._sequences: dict[Hashable, _StepSequence] = {}

    def steps(self, key: Hashable, steps: Steps, begins_run: bool = True) -> Steps:
        """The callables that do `steps` in this run: `steps`, or a replay of their operator calls.

        Pairs are (command number, callable); a `key` has always the same steps. `begins_run` is
        false for later steps of a run (a backward pass): they use memory of the run's earlier keys.
        """
        if self._settings != (settings := settings_version()):
            if any(sequence.recorded is not None for sequence in self._sequences.values()):
                if not begins_run:
                    return steps  # live; the recordings are made anew from the next run on
                self._sequences.clear()
            self._settings = settings
        policy = self._workspace.policy
        if (sequence := self._sequences.pop(key, None)) is None:
            sequence = _StepSequence(steps, self._workspace, self._capture, self._first)
            policy.num_first_runs += 1
        self._sequences[key] = sequence  # the sequence used last comes last
        while begins_run and len(self._sequences) > _MAX_SEQUENCES:
            del self._sequences[next(iter(self._sequences))]
        if self._capture is None:
            policy.begin_run(sequence.is_complete)
            if sequence.is_complete:
                # all now, so that one run of the compiler makes the kernels of all
                for other in self._sequences.values():
                    if other.is_complete:
                        other.flatten()
        return sequence.next_run()

    def run(self, key: Hashable, work: Step, begins_run: bool = True) -> None:
        """Do `work` by its Python code, or replay the operator calls recorded in an earlier run.

        Equal `key`, equal work. `begins_run` is false for later work of a run (a backward pass).
        """
        for _, step in self.steps(key, [(0, work)], begins_run):
            step()


class _StepSequence:
    """The steps (command number, callable) that a Replayer knows by one key, and their recordings.

    Their Python code runs until the workspace's KernelPolicy says to record it; then replays run.
    """

    def __init__(
        self, steps: Steps, workspace: Workspace, capture: Capture | None, first: Occasion
    ) -> None:
        self._steps, self._workspace, self._capture = steps, workspace, capture
        self._occasion, self._num_live = first, 0
        self._persistent: PersistentObjects = {}
        self._host_work: set[int] = set()
        """Commands that had work for the host in the latest live run."""
        self._num_random: dict[int, int] = {}
        """Command -> random decisions in a live run."""
        self._scratch_bytes = 0
        self.recorded: list[tuple[int, RecordedStep]] | None = None
        self._flat: Steps | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every step has been recorded and `flatten` has not been called."""
        recorded = None if self._flat is not None else self.recorded
        return recorded is not None and all(step.has_run for _, step in recorded)

    def next_run(self) -> Steps:
        """(command number, callable) for the next run: Python code, recorded or not, or replays."""
        if self._flat is not None:
            return self._flat
        if self.recorded is None:
            rule = self._workspace.policy.rule(self._occasion, self._capture is not None)
            if rule.state is RunState.LIVE:
                self._occasion = Occasion.SECOND
                self._num_live += 1
                self._host_work.clear()
                return [(c, partial(self._run_live, c, step, rule)) for c, step in self._steps]
            self._workspace.reserve(self._scratch_bytes)
            self.recorded = list(self._recorded_steps())
        return [(c, step.run) for c, step in self.recorded]

    def flatten(self) -> None:
        """On a CPU, replace each step that has only one recording by the operator calls in it."""
        assert self.recorded is not None
        policy = self._workspace.policy
        flat: list[tuple[int, Step]] = []
        calls: list[tuple[int, Call]] = []
        for c, step in self.recorded:
            if (recording := step.only_recording) is not None:
                calls += [(c, call) for call in recording]
                continue
            step.prepare()
            flat += [*policy.replay_steps(calls), (c, step.run)]
            calls = []
        self._flat = [*flat, *policy.replay_steps(calls)]
        self.recorded = []  # frees the memory of most calls

    def _run_live(self, c: int, step: Step, rule: Rule) -> None:
        on_gpu = self._capture is not None
        scratch = None if on_gpu else self._workspace
        recorder = Recorder(scratch=scratch, known_kernels=self._workspace.policy.kernels_for(rule))
        with recorder:
            step()
        self._scratch_bytes = max(self._scratch_bytes, recorder.scratch_bytes)
        self._num_random[c] = max(self._num_random.get(c, 0), recorder.num_random)
        if recorder.has_host_work and on_gpu:
            self._host_work.add(c)
            if self._num_live < _MAX_LIVE:
                self._occasion = Occasion.FIRST

    def _recorded_steps(self) -> Iterator[tuple[int, RecordedStep]]:
        """Yield (number of its first command, RecordedStep); on a GPU, one may do several steps."""
        on_gpu = self._capture is not None
        joined: list[tuple[int, Step]] = []
        num_random = 0
        for c, step in self._steps:
            on_side_stream = on_gpu and isinstance(step, SideStreamStep)
            is_single = not on_gpu or c in self._host_work or on_side_stream
            more_random = self._num_random.get(c, 0)
            if joined and (is_single or num_random + more_random > _MAX_RANDOM):
                yield joined[0][0], self._recorded_step(joined)
                joined, num_random = [], 0
            if is_single:
                yield c, self._recorded_step([(c, step)], on_side_stream)
            else:
                joined.append((c, step))
                num_random += more_random
        if joined:
            yield joined[0][0], self._recorded_step(joined)

    def _recorded_step(self, steps: Steps, on_side_stream: bool = False) -> RecordedStep:
        workspace = self._workspace.another() if on_side_stream else self._workspace
        return RecordedStep(steps, workspace, self._persistent, self._capture, on_side_stream)
