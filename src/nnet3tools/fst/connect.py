"""Reachability of an FST's states, selection of states, and renumbering."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fst.fst import NO_STATE, Fst

_Bools = NDArray[np.bool_]
_Ints = NDArray[np.int32]


def accessible(fst: Fst) -> _Bools:
    """Mask (N,) of the states that can be reached from the start."""
    size = fst.num_states
    if fst.start == 0 and (fst.nextstates > fst.sources).all():
        entered = np.zeros(size, bool)
        entered[fst.nextstates] = True
        entered[0] = True
        if entered[fst.sources].all():  # the FST is sorted and arcs leave only entered states
            return entered
    return _reached(size, fst.offsets, fst.nextstates, [fst.start] if size else [])


def coaccessible(fst: Fst) -> _Bools:
    """Mask (N,) of the states from which a final state can be reached."""
    size, final = fst.num_states, fst.is_final
    if (fst.nextstates > fst.sources).all():
        goes_on = final | (fst.counts > 0)
        if goes_on[fst.nextstates].all():  # the FST is sorted and arcs enter only such states
            return goes_on
    order = np.argsort(fst.nextstates, kind="stable")
    counts = np.bincount(fst.nextstates, minlength=size)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return _reached(size, offsets, fst.sources[order], np.flatnonzero(final).tolist())


def _reached(
    size: int, offsets: NDArray[np.int64], neighbours: _Ints, beginnings: list[int]
) -> _Bools:
    """Mask (size,) of states reachable from `beginnings`; CSR arrays `offsets`, `neighbours`."""
    ends, targets = offsets.tolist(), neighbours.tolist()
    seen = bytearray(size)
    stack = [state for state in beginnings if state != NO_STATE]
    for state in stack:
        seen[state] = 1
    while stack:
        state = stack.pop()
        for target in targets[ends[state] : ends[state + 1]]:
            if not seen[target]:
                seen[target] = 1
                stack.append(target)
    return np.frombuffer(seen, np.uint8).astype(bool)


def keep_states(fst: Fst, keep: _Bools) -> Fst:
    """The FST with only the states where `keep` is True, renumbered in order."""
    if keep.all():
        return fst
    if not keep.any() or not keep[fst.start]:
        return Fst.empty()
    arcs = keep[fst.sources] & keep[fst.nextstates]
    return _renumbered(fst, fst.finals[keep], np.cumsum(keep) - 1, arcs)


def _renumbered(
    fst: Fst, finals: NDArray[np.float32], numbers: NDArray[np.integer], arcs: _Bools | slice
) -> Fst:
    """`fst` with only `arcs`, and with state s as numbers[s]; `finals` is by these new numbers."""
    outputs = None if fst.olabels is fst.ilabels else fst.olabels[arcs]
    return Fst.from_arcs(
        int(numbers[fst.start]),
        finals,
        numbers[fst.sources[arcs]],
        fst.ilabels[arcs],
        fst.weights[arcs],
        numbers[fst.nextstates[arcs]],
        outputs,
    )


def connect(fst: Fst) -> Fst:
    """The FST without the states that are on no path from the start to a final state."""
    return keep_states(fst, accessible(fst) & coaccessible(fst)) if fst.num_states else fst


def reordered(fst: Fst, numbers: _Ints) -> Fst:
    """The FST with renumbered states: s becomes `numbers[s]`; `numbers` (N,) is a permutation."""
    finals = np.empty_like(fst.finals)
    finals[numbers] = fst.finals
    return _renumbered(fst, finals, numbers, slice(None))


def breadth_first_sorted(fst: Fst) -> Fst:
    """The FST with its states in breadth-first order (Kaldi's SortBreadthFirstSearch).

    All states must be reachable. If paths to a state are equally long, states are in time order.
    """
    if not fst.num_states:
        return fst
    order, _ = _breadth_first(fst)
    numbers = np.empty(fst.num_states, np.int32)
    numbers[order] = np.arange(fst.num_states)
    return reordered(fst, numbers)


def steps_from_start(fst: Fst) -> _Ints:
    """Number of arcs of the shortest path to each state, (N,); -1 for unreachable states."""
    return np.array(_breadth_first(fst)[1], np.int32)


def _breadth_first(fst: Fst) -> tuple[list[int], list[int]]:
    """(reachable states in breadth-first order, for each state its steps from the start or -1)."""
    ends, targets = fst.offsets.tolist(), fst.nextstates.tolist()
    steps = [-1] * fst.num_states
    queue: list[int] = []
    if fst.num_states:
        steps[fst.start] = 0
        queue.append(fst.start)
    for state in queue:  # which grows
        for target in targets[ends[state] : ends[state + 1]]:
            if steps[target] < 0:
                steps[target] = steps[state] + 1
                queue.append(target)
    return queue, steps


def component_numbers(fst: Fst) -> _Ints:
    """Number of the strongly connected component of each state, (N,), by Tarjan's algorithm.

    Arcs lead from a component to itself or to one with a lower number.
    """
    ends, targets = fst.offsets.tolist(), fst.nextstates.tolist()
    size, count, time = fst.num_states, 0, 0
    entered, low, component = [-1] * size, [0] * size, [-1] * size
    for root in range(size):
        if entered[root] >= 0:
            continue
        path, place, members = [root], [ends[root]], [root]
        entered[root] = low[root] = time
        time += 1
        while path:
            state, at = path[-1], place[-1]
            if at < ends[state + 1]:
                place[-1] = at + 1
                target = targets[at]
                if entered[target] < 0:
                    entered[target] = low[target] = time
                    time += 1
                    path.append(target)
                    place.append(ends[target])
                    members.append(target)
                elif component[target] < 0:
                    low[state] = min(low[state], entered[target])
                continue
            path.pop()
            place.pop()
            if path:
                low[path[-1]] = min(low[path[-1]], low[state])
            if low[state] == entered[state]:
                while True:
                    member = members.pop()
                    component[member] = count
                    if member == state:
                        break
                count += 1
    return np.array(component, np.int32)
