"""Depth-first search in OpenFst's order of states."""

from __future__ import annotations

from nnet3tools.errors import DataError
from nnet3tools.fst.fst import Fst


def depth_first(fst: Fst) -> tuple[list[int], list[int], bool]:
    """(states in discovery order, states in finishing order, whether there is a cycle)."""
    targets, ends = fst.nextstates.tolist(), fst.offsets.tolist()
    place = ends[:-1]  # the next arc of each state to follow
    discovered: list[int] = []
    finished: list[int] = []
    status = bytearray(fst.num_states)  # 1 while a state is on the path, 2 when it is finished
    is_cyclic = False
    for root in [fst.start, *range(fst.num_states)]:
        if root < 0 or status[root]:
            continue
        status[root] = 1
        discovered.append(root)
        path = [root]
        while path:
            state = path[-1]
            if place[state] == ends[state + 1]:
                status[state] = 2
                finished.append(path.pop())
                continue
            target = targets[place[state]]
            place[state] += 1
            if not status[target]:
                status[target] = 1
                discovered.append(target)
                path.append(target)
            elif status[target] == 1:
                is_cyclic = True
    return discovered, finished, is_cyclic


def top_order(fst: Fst) -> list[int]:
    """The states in OpenFst's topological order (TopSort); DataError for a cycle."""
    _, finished, is_cyclic = depth_first(fst)
    if is_cyclic:
        raise DataError("the lattice has a cycle, so its states have no topological order")
    return finished[::-1]
