"""A graph's launches in fewer kernels: what does not depend on each other runs as one wave.

A list of launches (launches.py), each with the memory it reads and writes, is a graph of what has
to wait for what. It is done in turns: all products that wait for nothing, side by side,
then one wave of all kernels that wait for nothing, and so on, so that there are no more waves than
the longest chain has. Into a wave goes also what can follow on others of it (wave.py).

So neither fills nor copies nor numbers have kernels of their own. Every element is computed as it
would have been by itself, and sums are added in the same order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nnet3tools.tensor.cuda.dependencies import dependencies
from nnet3tools.tensor.cuda.device import Device, get_device
from nnet3tools.tensor.cuda.launches import Launch, Other, Product, noted
from nnet3tools.tensor.cuda.products import joined
from nnet3tools.tensor.cuda.wave import Wave, fits
from nnet3tools.tensor.cuda.wave_table import Table

__all__ = ["capture", "waves_of"]

Node = Launch | Other


def capture(work: Callable[[], None], aside: bool = False) -> Callable[[], None]:
    """A graph of what some work launches, in waves; see Device.capture."""
    device = get_device()
    _steps(work, device, prepare=True)  # loads kernels, which a capture does not allow

    steps = list[Callable[[], Any]]()

    def in_waves() -> None:
        steps.extend(_steps(work, device))
        for step in steps:
            step()

    graph = device.capture(in_waves, aside)

    def replay() -> None:
        graph()
        steps  # noqa: B018 (its kernels know arrays by address only)

    return replay


def _steps(
    work: Callable[[], None], device: Device, prepare: bool = False
) -> list[Callable[[], Any]]:
    """What does the work; with `prepare` its kernels are loaded, and nothing more."""
    with noted() as nodes:
        work()
    table, steps = Table(), list[Callable[[], Any]]()
    groups = waves_of(nodes)
    if prepare:
        waves = [group for group in groups if isinstance(group, Wave)]
        device.load([wave.source for wave in waves if wave.source is not None])
    for group in groups:
        if isinstance(group, Wave):
            steps.append(group.bound(device, table))
        else:
            steps.append(partial(device.side_by_side, _alone(group)))
    if not prepare:
        table.upload(device)
    return steps


def _alone(nodes: Sequence[Node]) -> list[Callable[[], Any]]:
    """Work of nodes that do not wait for each other; products are joined where they can be."""
    steps, products = list[Callable[[], Any]](), dict[object, list[Product]]()
    for node in nodes:
        if isinstance(node, Product) and node.form is not None:
            products.setdefault(node.form, []).append(node)
        else:
            steps.append(node.run if isinstance(node, Other) else node)
    for same in products.values():
        steps += joined(same)
    return steps


def waves_of(nodes: Sequence[Node]) -> list[Wave | list[Node]]:
    """In turns: nodes that are done as they are, and waves."""
    waits_for = dependencies(nodes)
    followers: list[list[int]] = [[] for _ in nodes]
    for i, earlier in enumerate(waits_for):
        for j in earlier:
            followers[j].append(i)
    left = [len(earlier) for earlier in waits_for]
    fit = [fits(node) for node in nodes]
    ready = {i for i, n in enumerate(left) if n == 0}
    turns = list[tuple[Wave | None, list[int]]]()
    while ready:
        wave, now = None, sorted(i for i in ready if not fit[i])
        if not now:
            wave, now = _next_wave(nodes, sorted(ready), waits_for, followers, left, fit)
        turns.append((wave, now))
        for i in now:
            for j in followers[i]:
                left[j] -= 1
        ready |= {j for i in now for j in followers[i] if left[j] == 0}
        ready.difference_update(now)
    alone = _gathered(nodes, turns, followers)
    return [
        wave or [nodes[i] for i in now]
        for (wave, _), now in zip(turns, alone, strict=True)
        if wave is not None or now
    ]


def _gathered(
    nodes: Sequence[Node],
    turns: Sequence[tuple[Wave | None, list[int]]],
    followers: Sequence[list[int]],
) -> list[list[int]]:
    """The nodes of each turn after some products were put off, for others of their form to join.

    None comes later than the turn before the first that waits for it.
    """
    turn = {i: t for t, (_, now) in enumerate(turns) for i in now}
    by_form: dict[object, list[int]] = {}
    for i in sorted(turn, key=turn.__getitem__):
        node = nodes[i]
        if isinstance(node, Product) and node.form is not None:
            by_form.setdefault(node.form, []).append(i)
    for same in by_form.values():
        latest = turn[same[-1]]
        for i in reversed(same):
            if all(turn[j] > latest for j in followers[i]):
                turn[i] = latest
            else:
                latest = turn[i]
    found: list[list[int]] = [[] for _ in turns]
    for i, t in turn.items():
        found[t].append(i)
    return [sorted(now) for now in found]


def _next_wave(
    nodes: Sequence[Node], ready: list[int], waits_for: list[set[int]],
    followers: list[list[int]], left: list[int], fit: list[bool],
) -> tuple[Wave, list[int]]:  # fmt: skip
    """A wave of all that is ready, and of what can follow within it; their numbers."""
    wave, taken = Wave(), dict[int, None]()
    within = dict[int, int]()
    candidates = sorted(ready)
    while candidates:
        i = heapq.heappop(candidates)
        node = nodes[i]
        assert isinstance(node, Launch)
        if not wave.takes(i, node, (j for j in waits_for[i] if j in taken)):
            continue
        taken[i] = None
        for j in followers[i]:
            within[j] = within.get(j, 0) + 1
            if within[j] == left[j] and fit[j]:
                heapq.heappush(candidates, j)
    return wave, list(taken)
