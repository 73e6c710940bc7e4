"""Depth-first search in OpenFst's order of states."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.errors import DataError


def depth_first(start: int, targets: Sequence[Sequence[int]]) -> tuple[list[int], list[int], bool]:
    """States in discovery order, states in finishing order, whether there is a cycle.

    `targets` are each state's next states. Unreachable states come last.
    """
    discovered: list[int] = []
    finished: list[int] = []
    place = [0] * len(targets)  # index of the next arc to follow
    status = bytearray(len(targets))  # 1 while a state is on the path, 2 when it is finished
    is_cyclic = False
    for root in [start, *range(len(targets))]:
        if root < 0 or status[root]:
            continue
        status[root] = 1
        discovered.append(root)
        path = [root]
        while path:
            state = path[-1]
            if place[state] == len(targets[state]):
                status[state] = 2
                finished.append(path.pop())
                continue
            target = targets[state][place[state]]
            place[state] += 1
            if not status[target]:
                status[target] = 1
                discovered.append(target)
                path.append(target)
            elif status[target] == 1:
                is_cyclic = True
    return discovered, finished, is_cyclic


def top_order(start: int, targets: Sequence[Sequence[int]]) -> list[int]:
    """The states in OpenFst's topological order (TopSort); DataError for a cycle."""
    _, finished, is_cyclic = depth_first(start, targets)
    if is_cyclic:
        raise DataError("the lattice has a cycle, so its states have no topological order")
    return finished[::-1]
