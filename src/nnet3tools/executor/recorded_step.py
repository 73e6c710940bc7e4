"""RecordedStep: a step of a program with its recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nnet3tools.executor.bound_program import Step
from nnet3tools.io import log
from nnet3tools.tensor.arrays import captured_scratch
from nnet3tools.tensor.call import Recording, in_turn
from nnet3tools.tensor.flags import Flags
from nnet3tools.tensor.kernel_policy import Engine, Occasion, Rule, RunState
from nnet3tools.tensor.recorder import PersistentObjects, Recorder
from nnet3tools.tensor.recording import Action, Decision, NotCapturable, Outcomes, without_actions
from nnet3tools.tensor.workspace import Workspace

Steps = Sequence[tuple[int, Step]]
"""(number of the command, step) in order."""
Capture = Callable[[Callable[[], Any], bool], Callable[[], Any]]
"""Function of work, and whether it is for the side stream: captures it and returns a launcher."""


class _HostEvents(NamedTuple):
    """Functions a replay calls on the host: actions, then a decision (choice of work) if any."""

    actions: tuple[Action, ...]
    decision: Decision | None
    """The decision after these actions; None after the last decision."""


class RecordedStep:
    """A command's work, or that of several commands, and the operator calls recorded while it ran.

    A choice that the Python code makes has an outcome; each sequence of outcomes has one recording.
    """

    def __init__(
        self, steps: Steps, workspace: Workspace, persistent: PersistentObjects,
        capture: Capture | None, on_side_stream: bool = False,
    ) -> None:  # fmt: skip
        self._steps, self._workspace, self._persistent = steps, workspace, persistent
        self._policy = workspace.policy
        self._capture, self._on_side_stream = capture, on_side_stream
        self._events: dict[Outcomes, _HostEvents] = {}
        """Outcomes so far -> what the host does next."""
        self._recordings: dict[Outcomes, Recording] = {}
        self._work: dict[Outcomes, Step] = {}
        """Outcomes -> the recording as one callable; on a GPU, as a graph."""
        self._flags = None if capture is None else Flags()
        self._not_recordable: set[Outcomes] = set()
        self.has_run = False
        """Whether a run has come to its end."""

    def run(self) -> None:
        """Do the work of the steps: make the host's decisions, then the calls recorded for them.

        If there is no recording for these decisions, run the Python code of the steps.
        """
        outcomes: Outcomes = ()
        num_actions = 0
        while (events := self._events.get(outcomes)) is not None:
            for action in events.actions:
                action()
            num_actions += len(events.actions)
            if events.decision is None:
                break
            outcomes = (*outcomes, events.decision())
        if self._flags is not None:
            self._flags.send()
        if (work := self._work.get(outcomes)) is not None:
            work()
            return
        rule = self._policy.rule(self._occasion(outcomes), self._capture is not None)
        if rule.state is not RunState.REPLAY:
            self._run_python(outcomes, num_actions, rule)
        elif rule.engine is Engine.CUDA_GRAPH:
            self._capture_and_run(outcomes)
        else:
            self.prepare()
            self._work[outcomes]()

    def _occasion(self, outcomes: Outcomes) -> Occasion:
        if outcomes in self._recordings:
            return Occasion.LATER
        is_known = outcomes in self._not_recordable
        return Occasion.HOST_WORK if is_known else Occasion.NEW_OUTCOMES

    def prepare(self) -> None:
        """On a CPU, make one callable of each recorded list of operator calls that has none yet."""
        for outcomes, calls in self._recordings.items():
            if outcomes not in self._work:
                steps = self._policy.replay_steps([(0, call) for call in calls])
                self._work[outcomes] = in_turn(work for _, work in steps)
                if outcomes:  # `only_recording` may be asked for
                    self._recordings[outcomes] = ()

    @property
    def only_recording(self) -> Recording | None:
        """The recorded operator calls; None if the host decides (`decide`) or acts (`act`) too."""
        events = self._events.get(())
        return None if events is None or events.actions else self._recordings.get(())

    def _run_python(self, outcomes: Outcomes, num_actions: int, rule: Rule) -> None:
        """Run the Python code of the steps; record their operator calls if `rule.state` is RECORD.

        The decisions whose results are `outcomes`, and the first `num_actions` actions, were made
        before this call and are not repeated.
        """
        records = rule.state is RunState.RECORD
        replay_rule = self._policy.rule(Occasion.LATER, self._capture is not None)
        recorder = Recorder(
            outcomes,
            num_actions,
            persistent=self._persistent,
            workspace=self._workspace if records else None,
            known_kernels=self._policy.kernels_for(rule),
            keeps_bound=replay_rule.engine is not Engine.COMPILED,
            flags=self._flags,
        )
        with recorder:
            for c, step in self._steps:
                recorder.begin_step(c)
                step()
        is_first, self.has_run = not self.has_run, True
        if not records:
            return
        outcomes = self._add_events(recorder)
        if not recorder.has_host_work:
            self._recordings[outcomes] = tuple(recorder.calls)
        elif not is_first:  # in a first run the work may have been of the kind that is done once
            self._not_recordable.add(outcomes)
            log.vlog(2, f"command c{self._steps[0][0]} has work for the host: not recorded")

    def _add_events(self, recorder: Recorder) -> Outcomes:
        """Keep decisions and actions that `recorder` saw for later runs; return its outcomes."""
        outcomes = tuple(recorder.outcomes)
        for i, decision in enumerate((*recorder.decisions, None)):
            known = self._events.get(outcomes[:i])
            if known is None or known.decision is None:
                self._events[outcomes[:i]] = _HostEvents(tuple(recorder.actions[i]), decision)
        return outcomes

    def _capture_and_run(self, outcomes: Outcomes) -> None:
        assert self._capture is not None
        calls = self._recordings[outcomes]
        work = in_turn([call.bind() for call in calls])
        try:
            if calls:
                with captured_scratch(self._on_side_stream), without_actions():
                    work = self._capture(work, self._on_side_stream)
            self._work[outcomes] = work
        except NotCapturable:
            pass  # a later run tries again
        work()
