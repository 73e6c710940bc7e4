"""Running work again from recordings: lists of bound operators on a CPU, CUDA graphs on a GPU.

The first run of some steps is live, for programs that run once must not pay for more; notes are
taken of the scratch memory they need, and for a GPU of which of them draw random decisions or look
at results. The second run records (tensor/recording.py): what comes after the same outcomes of the
host's events, a variant of the work, is a list of calls, which later runs call in turn, or capture
once as a graph and launch. A variant that has not come up yet is recorded when it does.

What a CPU will run again, as a training does its minibatches, is recorded in its first run, which
takes a quarter longer; compiled kernels then do the second.

On a CPU each step has its own variants, so that they do not multiply, and what has no events is one
flat list. On a GPU, where launches are dear, steps are gathered into sections with few random
decisions each, as every one of them may double the variants.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from nnet3tools.executor.section import Capture, Section, Step, Steps
from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.recorder import Memory, Recorder
from nnet3tools.tensor.recording import (
    Call,
    Kernels,
)
from nnet3tools.tensor.settings import settings_version
from nnet3tools.tensor.workspace import Workspace

__all__ = ["Aside", "Capture", "Replayer", "Step", "device_capture"]

_MAX_NOTED = 2
"""Live runs at most before those that record, where the first was no example."""
_MANY = 6
"""First runs in one workspace from which on kernels do what they can of first runs: those of two
minibatches of a training and more. What runs once or twice does not wait for a compiler."""
_MAX_RANDOM = 3
"""Random decisions in one section: it has up to 2 ** 3 variants for them alone."""


def device_capture() -> Capture:
    """How the GPU in use captures work."""
    from nnet3tools.tensor.cuda.fused_levels import capture

    return capture


@dataclass(frozen=True)
class Aside:
    """Work that a GPU may do beside what comes after it, until tensor.aside.join.

    That is called by whoever looks at what it changes, or changes what it looks at.
    """

    work: Step

    def __call__(self) -> object:
        return self.work()


class Replayer:
    """Runs pieces of work, each a list of steps under a key, live at first, then from recordings.

    `capture` is how a device captures work as a graph (None: it does not). Replayers that never run
    interleaved may share a workspace.
    """

    def __init__(
        self, workspace: Workspace, capture: Capture | None = None, repeats: bool = False
    ) -> None:
        """`repeats`: what runs will most likely run again, so that a CPU records first runs."""
        self._workspace, self._capture = workspace, capture
        self._repeats = repeats and capture is None and workspace.grows_in_place
        self._settings = settings_version()
        self._pieces: dict[Hashable, _Piece] = {}

    def steps(self, key: Hashable, steps: Steps, opens: bool = True) -> Steps:
        """(number of the first step, work) to do in turn to do the piece of work this time.

        Unless it `opens` a run, it may use what pieces before it have left in memory of their own.
        """
        if self._settings != (settings := settings_version()):
            if any(piece.is_recorded for piece in self._pieces.values()):
                if not opens:  # a recording would know memory of those before it, which end here
                    return [(c, _run_of(step)) for c, step in steps]
                self._pieces.clear()
            self._settings = settings
        piece = self._pieces.get(key)
        if piece is None:
            num_noted = 0 if self._repeats else _MAX_NOTED
            piece = self._pieces[key] = _Piece(steps, self._workspace, self._capture, num_noted)
            self._workspace.first_runs += 1
        can_be_flat = self._capture is None and piece.can_be_flat
        if can_be_flat or self._workspace.first_runs >= _MANY:
            self._use_kernels()
        if self._workspace.kernels is not None:
            self._workspace.kernels.begin_run()
        if can_be_flat:
            # all at once, as their compiled kernels are then made by one run of the compiler
            for other in self._pieces.values():
                if other.can_be_flat:
                    other.make_flat()
        return piece.next_run()

    def _use_kernels(self) -> None:
        """Have kernels do what is new from now on: enough is done again and again, or new."""
        if self._capture is None and are_native() and self._workspace.kernels is None:
            from nnet3tools.tensor.cpu.at_once import KernelsAtOnce

            self._workspace.kernels = KernelsAtOnce()

    def run(self, key: Hashable, work: Step, opens: bool = True) -> None:
        """Do some work. That of an equal key must be the same, declared decisions excepted.

        `opens`: as of `steps`.
        """
        for _, step in self.steps(key, [(0, work)], opens):
            step()


class _Piece:
    """Steps that always run one after the other."""

    def __init__(
        self, steps: Steps, workspace: Workspace, capture: Capture | None, num_noted: int
    ) -> None:
        self._steps, self._workspace, self._capture = steps, workspace, capture
        self._memory: Memory = {}
        self._left = num_noted
        """Live runs to come, fewer if the latest was an example of all that follow; 0 at first if
        the first run is to be recorded.
        """
        self._excused: set[int] = set()
        self._random: dict[int, int] = {}
        """Step -> how many decisions of a live run were random."""
        self._scratch_bytes = 0
        self._sections: list[tuple[int, Section]] | None = None
        self._flat: Steps | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether later runs depend on what was recorded."""
        return self._sections is not None

    def next_run(self) -> Steps:
        """The steps of one run."""
        if self._flat is not None:
            return self._flat
        if self._left > 0:
            left, self._left = self._left - 1, 0
            self._excused.clear()
            return [(c, self._live(c, step, left)) for c, step in self._steps]
        if self._sections is None:
            self._workspace.reserve(self._scratch_bytes)
            self._sections = list(self._make_sections())
        return [(c, section.run) for c, section in self._sections]

    def _live(self, c: int, step: Step, left: int) -> Step:
        """A step as it runs live: of a call there is nothing to note, but perhaps a kernel."""
        if not isinstance(step, Call):
            return partial(self._note, c, step, left)
        kernels, origin = self._workspace.kernels, step.origin
        if self._capture is None and kernels is not None and origin is not None:
            if kernels.pay_for(origin.operator):
                return partial(_run_by, kernels, step)
        return step

    @property
    def can_be_flat(self) -> bool:
        """Whether all sections have run, and a list of their calls is still to be made."""
        found = self._sections if self._flat is None else None
        return found is not None and all(section.has_run for _, section in found)

    def make_flat(self) -> None:
        """From now on run calls instead of sections where there is only one variant."""
        assert self._sections is not None
        if self._workspace.kernels is not None:
            for _, section in self._sections:
                section.ask_for(self._workspace.kernels)
        self._flat = _flat(self._sections)
        self._sections = []  # the calls of most are no longer needed, which take memory

    def _note(self, c: int, step: Step, left: int) -> None:
        scratch, kernels = None, None
        if self._capture is None:
            scratch, kernels = self._workspace, self._workspace.kernels
        recorder = Recorder(scratch=scratch, kernels=kernels)
        with recorder:
            step()
        self._scratch_bytes = max(self._scratch_bytes, recorder.scratch_bytes)
        self._random[c] = max(self._random.get(c, 0), recorder.num_random)
        if recorder.excused and self._capture is not None:
            self._excused.add(c)
            self._left = left

    def _make_sections(self) -> Iterator[tuple[int, Section]]:
        """Each step alone; on a GPU only those that cannot be captured, the others gathered."""
        steps: list[tuple[int, Step]] = []
        random = 0
        for c, step in self._steps:
            weight = self._random.get(c, 0)
            aside = self._capture is not None and isinstance(step, Aside)
            alone = self._capture is None or c in self._excused or aside
            if steps and (alone or random + weight > _MAX_RANDOM):
                yield steps[0][0], self._section(steps)
                steps, random = [], 0
            steps.append((c, step))
            random += weight
            if alone:
                yield c, self._section(steps, aside)
                steps, random = [], 0
        if steps:
            yield steps[0][0], self._section(steps)

    def _section(self, steps: Steps, aside: bool = False) -> Section:
        workspace = self._workspace.another() if aside else self._workspace
        return Section(steps, workspace, self._memory, self._capture, aside)


def _run_by(kernels: Kernels, call: Call) -> None:
    assert call.origin is not None
    operator, operands, options, _ = call.origin
    if not kernels.run(operator, operands, options):
        call.run()


def _flat(sections: Sequence[tuple[int, Section]]) -> Steps:
    """Sections on a CPU as (command, work): neighbouring calls that have kernels as one."""
    flat: list[tuple[int, Step]] = []
    for c, section in sections:
        calls = section.only_calls
        if calls is None:
            section.bind()
            flat.append((c, section.run))
        else:
            flat += [(c, call) for call in calls]
    return list(_joined(flat)) if are_native() else [(c, _run_of(step)) for c, step in flat]


# What follows loads the compiled kernels' modules where a program first replays, not before.


def _joined(steps: Steps) -> Iterator[tuple[int, Step]]:
    """Neighbouring calls that have kernels as one step; the others keep their command."""
    from nnet3tools.tensor.cpu.calls import part_of
    from nnet3tools.tensor.cpu.jobs import Part, Series

    waiting: list[Part] = []
    first = 0
    for c, step in steps:
        part = part_of(step) if isinstance(step, Call) else None
        if part is not None and part[0] is not None:
            first = first if waiting else c
            waiting.append(part)
            continue
        if waiting:
            yield first, Series(waiting)
            waiting = []
        yield c, _run_of(step)
    if waiting:
        yield first, Series(waiting)


def _run_of(step: Step) -> Step:
    return step.bound() if isinstance(step, Call) else step
