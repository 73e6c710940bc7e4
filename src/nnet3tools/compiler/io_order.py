"""Where a program exchanges matrices with its user: inputs first, outputs last in each segment."""

from __future__ import annotations

from nnet3tools.program.commands import AcceptInput, Command, NoOperationMarker, ProvideOutput
from nnet3tools.program.computation import Computation

__all__ = ["consolidate_io", "segments"]


def segments(commands: list[Command]) -> list[tuple[int, int]]:
    """(first, end) of the stretches of commands between NoOperationMarkers."""
    marks = [i for i, command in enumerate(commands) if isinstance(command, NoOperationMarker)]
    return list(zip([0, *(m + 1 for m in marks)], [*marks, len(commands)], strict=True))


def consolidate_io(computation: Computation) -> None:
    """Move AcceptInput to the start and ProvideOutput to the end of each segment (in place)."""
    commands = computation.commands
    reordered: list[Command] = []
    for first, end in segments(commands):
        if first > 0:
            reordered.append(commands[first - 1])
        segment = commands[first:end]
        accept = [c for c in segment if isinstance(c, AcceptInput)]
        provide = [c for c in segment if isinstance(c, ProvideOutput)]
        reordered += accept
        reordered += [c for c in segment if not isinstance(c, AcceptInput | ProvideOutput)]
        reordered += provide
    computation.commands = reordered
