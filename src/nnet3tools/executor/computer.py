"""NnetComputer: runs a program, handing matrices in and out (Kaldi's nnet-compute.h).

computer = NnetComputer(options, computation, nnet, nnet_to_update)
computer.accept_input("input", features)
computer.run()                                  # forward
output = computer.get_output("output")
computer.accept_input("output", output_deriv)
computer.run()                                  # backward
input_deriv = computer.get_output("input")
computer.reset()                                # and again, for the next minibatch
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from nnet3tools import tensor
from nnet3tools.errors import DataError, ProgramError
from nnet3tools.executor.binding import Arena, bind_program
from nnet3tools.executor.bound_program import Segment
from nnet3tools.executor.debugging import Debugger
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.executor.recorded_step import Step, Steps
from nnet3tools.executor.replay import Replayer, SideStreamStep, device_capture
from nnet3tools.io.log import get_verbose, log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.natural_gradient_updates import apply_all_pending, forget_pending
from nnet3tools.program.computation import Computation
from nnet3tools.program.printing import command_text
from nnet3tools.tensor.arrays import POISON, poison
from nnet3tools.tensor.registry import device_of

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet

_SHOWN_BEFORE = 5
"""Commands before a failed one that its error shows."""


class NnetComputer:
    """Runs a compiled program: takes input matrices, runs forward and backward, returns outputs."""

    def __init__(
        self,
        options: ComputeOptions,
        computation: Computation,
        nnet: Nnet,
        nnet_to_update: Nnet | None = None,
        *,
        nnet_to_store_stats: Nnet | None = None,
        arena: Arena | None = None,
        like: Array | None = None,
        repeats: bool = False,
    ) -> None:
        """Bind a program to a network, ready to take inputs.

        `nnet_to_update` receives the model derivative (it may be `nnet`). `nnet_to_store_stats`, by
        default `nnet_to_update`, receives statistics. `like` is any array of the device to run on
        (default: the host); the networks are moved there. Computers that never run interleaved may
        share an `arena`. `repeats`: the program will probably run again, as in training.
        """
        self.options, self.computation, self.nnet = options, computation, nnet
        self.nnet_to_update = nnet_to_update
        stats = nnet_to_update if nnet_to_store_stats is None else nnet_to_store_stats
        arena = arena or Arena(like)
        for network in (nnet, nnet_to_update, stats):
            if network is not None:
                move_nnet(network, arena.take(0))
        self.program = bind_program(computation, nnet, nnet_to_update, stats, arena=arena)
        self.seconds: dict[int, float] = {}
        """Command -> seconds spent in the command so far, if that is measured."""
        self.observer: Callable[[int, Step], object] | None = None
        """Runs each step, given with its command, if steps are timed, logged or checked."""
        self._replayer: Replayer | None = None
        self._on_gpu = device_of(arena.take(0)) != "numpy"
        if options.debug or get_verbose() >= 5:
            self._debugger = Debugger(self.program)
            self.observer = self._debugged
        elif options.profile:
            self.observer = self._timed
        elif options.cuda_graph or not self._on_gpu:
            capture = device_capture() if self._on_gpu else None
            self._replayer = Replayer(arena.workspace, capture, repeats)
            self._recorded_steps = [self._with_pending(s.steps) for s in self.program.segments]
        self.reset()

    def reset(self) -> None:
        """Go back to the program's first command, for the next minibatch."""
        self._at = 0
        self._missing: set[int] = set()
        self.program.memos.clear()
        self._wait()

    def _wait(self) -> None:
        if self._at < len(self.program.segments):
            self._missing = set(self.program.segments[self._at].accepts)

    # -- input and output

    def input_buffer(self, node_name: str) -> Array:
        """The program's matrix for an input node, which the caller fills before `run`."""
        node = self._node(node_name)
        segment = self._segment()
        if segment is None or (found := segment.accepts.get(node)) is None:
            raise DataError(
                f"could not accept input for network node '{node_name}' "
                "(it is not expected at this point in the computation)"
            )
        if POISON and self._at == 0 and len(self._missing) == len(segment.accepts):
            poison(self.program.arena)  # of earlier minibatches
        self._missing.discard(node)
        return found

    def accept_input(self, node_name: str, matrix: Array) -> None:
        """Copy a matrix (rows, dim) to the program: features, or the derivative at an output node.

        DataError if the program does not wait for this node, or if the matrix has another shape.
        """
        buffer = self._fitting_buffer(node_name, matrix)
        tensor.copy(buffer, tensor.asarray(matrix, like=buffer))

    def accept_inputs(self, matrices: Mapping[str, Array], place: Hashable = None) -> None:
        """Copy input matrices by node name; a GPU records the copies once, and then replays them.

        Equal `place` in two calls promises matrices at equal addresses; None forbids recording.
        """
        buffers = [self._fitting_buffer(name, matrix) for name, matrix in matrices.items()]
        pairs = [
            (buffer, tensor.asarray(matrix, like=buffer))
            for buffer, matrix in zip(buffers, matrices.values(), strict=True)
        ]
        self.replay(None if place is None else ("inputs", self._at, place), partial(_copy, pairs))

    def _fitting_buffer(self, node_name: str, matrix: Array) -> Array:
        buffer = self.input_buffer(node_name)
        if matrix.shape != buffer.shape:
            raise DataError(
                f"size mismatch for input '{node_name}': {buffer.shape[0]} x {buffer.shape[1]} "
                f"in computation-request, {' x '.join(map(str, matrix.shape))} provided"
            )
        return buffer

    def get_output(self, node_name: str) -> Array:
        """A view of the program's matrix of an output, or of the derivative at an input node.

        The view is valid until the next `run`, or the next `accept_input` after a `reset`.
        """
        node = self._node(node_name)
        found = None if (segment := self._segment()) is None else segment.provides.get(node)
        if found is None:
            raise DataError(
                f"could not provide output for network node '{node_name}' "
                "(it is not expected at this point in the computation)"
            )
        return found

    def expected_inputs(self) -> list[str]:
        """The names of the nodes whose matrices the program waits for or has just received."""
        segment = self._segment()
        return [] if segment is None else [self.nnet.node_names[n] for n in segment.accepts]

    def available_outputs(self) -> list[str]:
        """The names of the nodes whose matrices `get_output` can return now."""
        segment = self._segment()
        return [] if segment is None else [self.nnet.node_names[n] for n in segment.provides]

    def _segment(self) -> Segment | None:
        segments = self.program.segments
        return segments[self._at] if self._at < len(segments) else None

    def _node(self, name: str) -> int:
        node = self.nnet.node_index(name)
        if node < 0:
            raise DataError(f"no node named '{name}' in the network")
        return node

    # -- running

    def run(self) -> None:
        """Run the program to its next wait: the first call runs forward, the second backward.

        If a command raises an error, a note with the text of the command is added to it.
        """
        if (segment := self._segment()) is None:
            raise ProgramError("the computation has finished already")
        if self._missing:
            name = self.nnet.node_names[min(self._missing)]
            raise DataError(f"cannot run the computation: there is no input for node '{name}'")
        c = -1
        try:
            for c, step in self._steps(segment):  # noqa: B007 (the error names c)
                step()
        except Exception as error:
            first = max(0, c - _SHOWN_BEFORE)
            previous = [command_text(self.computation, self.nnet, i) for i in range(first, c)]
            lines = [f"while running command {command_text(self.computation, self.nnet, c)}"]
            error.add_note("\n".join([*lines, "after", *previous] if previous else lines))
            raise
        self._at = segment.next
        self._wait()

    def replay(self, key: Hashable, work: Step) -> None:
        """Call `work`, which reads or writes inputs or outputs; a GPU records and replays it.

        Equal keys promise equal work on equal memory. With key None, `work` is never recorded.
        """
        if key is None or self._replayer is None or not self._on_gpu:
            work()
        else:
            self._replayer.run(key, work, begins_run=False)

    def _steps(self, segment: Segment) -> Steps:
        if self.observer is not None:
            return [(c, partial(self.observer, c, step)) for c, step in segment.steps]
        if self._replayer is None:
            return segment.steps
        forget_pending()
        return self._replayer.steps(self._at, self._recorded_steps[self._at], self._at == 0)

    def _with_pending(self, steps: list[tuple[int, Step]]) -> list[tuple[int, Step]]:
        """`steps` and, on a GPU after Backprops, a step that updates natural-gradient estimates."""
        commands = self.computation.commands
        if self._on_gpu and any(getattr(commands[c], "UPDATES", False) for c, _ in steps):
            return [*steps, (steps[-1][0], SideStreamStep(apply_all_pending))]
        return steps

    def _timed(self, c: int, step: Step) -> float:
        start = time.perf_counter()
        step()
        elapsed = time.perf_counter() - start
        self.seconds[c] = self.seconds.get(c, 0.0) + elapsed
        return elapsed

    def _debugged(self, c: int, step: Step) -> None:
        before = self._debugger.before(c)
        elapsed = self._timed(c, step)
        log(self._debugger.after(c, before, elapsed))

    def time_report(self) -> str:
        """Text with the time of each kind of command, largest first; "" if none was measured."""
        by_name: dict[str, list[float]] = {}
        for c, seconds in self.seconds.items():
            name = self.computation.commands[c].NAME.removeprefix("k")
            by_name.setdefault(name, []).append(seconds)
        total = sum(self.seconds.values())
        rows = sorted(((sum(v), len(v), name) for name, v in by_name.items()), reverse=True)
        return "\n".join(
            f"{name:24} {count:6d} commands {seconds:10.6f} s {100 * seconds / total:6.1f} %"
            for seconds, count, name in rows
        )


def _copy(pairs: Sequence[tuple[Array, Array]]) -> None:
    for buffer, matrix in pairs:
        tensor.copy(buffer, matrix)
