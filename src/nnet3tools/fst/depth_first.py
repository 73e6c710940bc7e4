"""Depth-first walks as OpenFst takes them, for the order of states that they leave."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.errors import DataError

__all__ = ["depth_first", "top_order"]


def depth_first(start: int, targets: Sequence[Sequence[int]]) -> tuple[list[int], list[int], bool]:
    """States in the order met and in the order left; whether an arc leads back (a cycle).

    `targets` are each state's next states. Those not reached from the start come afterwards.
    """
    met: list[int] = []
    left: list[int] = []
    place = [0] * len(targets)  # the next arc to follow
    status = bytearray(len(targets))  # 1 while a state is on the way, 2 when it has been left
    is_cyclic = False
    for root in [start, *range(len(targets))]:
        if root < 0 or status[root]:
            continue
        status[root] = 1
        met.append(root)
        way = [root]
        while way:
            state = way[-1]
            if place[state] == len(targets[state]):
                status[state] = 2
                left.append(way.pop())
                continue
            target = targets[state][place[state]]
            place[state] += 1
            if not status[target]:
                status[target] = 1
                met.append(target)
                way.append(target)
            elif status[target] == 1:
                is_cyclic = True
    return met, left, is_cyclic


def top_order(start: int, targets: Sequence[Sequence[int]]) -> list[int]:
    """The states so that arcs lead forwards, as OpenFst's TopSort has them; DataError if none."""
    _, left, is_cyclic = depth_first(start, targets)
    if is_cyclic:
        raise DataError("the lattice has a cycle, so its states have no topological order")
    return left[::-1]
