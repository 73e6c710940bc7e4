"""Order of inputs and outputs: inputs at the start, outputs at the end of each segment."""

import itertools

from nnet3tools.program.commands import AcceptInput, Command, NoOperationMarker, ProvideOutput
from nnet3tools.program.computation import Computation

_EXCHANGE = frozenset({AcceptInput, ProvideOutput})


def segments(commands: list[Command]) -> list[tuple[int, int]]:
    """[begin, end) of each segment: the commands between two NoOperationMarkers or program ends."""
    marks = [i for i, cls in enumerate(map(type, commands)) if cls is NoOperationMarker]
    return list(zip([0, *(m + 1 for m in marks)], [*marks, len(commands)], strict=True))


def consolidate_io(computation: Computation) -> None:
    """Move, in place, AcceptInput to the start and ProvideOutput to the end of each segment."""
    commands = computation.commands
    exchanging = [i for i, cls in enumerate(map(type, commands)) if cls in _EXCHANGE]
    reordered: list[Command] = []
    for first, end in segments(commands):
        if first > 0:
            reordered.append(commands[first - 1])
        here = [i for i in exchanging if first <= i < end]
        reordered += [commands[i] for i in here if isinstance(commands[i], AcceptInput)]
        for begin, stop in itertools.pairwise([first - 1, *here, end]):
            reordered += commands[begin + 1 : stop]
        reordered += [commands[i] for i in here if isinstance(commands[i], ProvideOutput)]
    computation.commands = reordered
