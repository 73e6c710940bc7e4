"""Level-scheduled fusion: the launches of a graph, in as few kernels as their dependencies allow.

Each launch names the memory that it reads and writes (launches.py); from these follows which
launches wait for which. The graph is captured level by level: first all library calls (matrix
products) that wait for nothing more, on concurrent streams, then one kernel for all launches that
wait for nothing more. A fused level may also contain launches that depend on launches of the same
level (fused_level.py). Every element is computed as by separate launches, and sums are added in
the same order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import Any

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import get_device
from nnet3tools.tensor.cuda.fused_level import FusedLevel, can_be_fused
from nnet3tools.tensor.cuda.launches import Launch, LibraryCall, dependencies, launches_of

Node = Launch | LibraryCall


def capture(work: Callable[[], None], on_side_stream: bool = False) -> Callable[[], None]:
    """A callable that launches a CUDA graph of `work`, in which one kernel does many launches.

    With `on_side_stream` it uses the side stream; `work` must then have no matrix product.
    """
    _steps(work, prepare=True)  # loads kernels, which a capture does not allow
    if on_side_stream and any(isinstance(node, LibraryCall) for node in launches_of(work)):
        # it would use the workspace of the main stream's products at the same time
        raise ProgramError("a matrix product cannot run on the side stream")

    steps = list[Callable[[], Any]]()

    def run_steps() -> None:
        steps.extend(_steps(work))
        for step in steps:
            step()

    graph = get_device().capture(run_steps, on_side_stream)

    def replay() -> None:
        graph()
        steps  # noqa: B018 (its kernels know arrays by address only)

    return replay


def _steps(work: Callable[[], None], prepare: bool = False) -> list[Callable[[], Any]]:
    """Callables that do all launches of `work`, in order.

    Each does the launches that may run at one time, as a fused kernel or side by side. With
    `prepare`, all kernels are loaded first, as a capture needs it.
    """
    device, steps = get_device(), list[Callable[[], Any]]()
    levels = schedule(launches_of(work))
    if prepare:
        sources = [level.source for level in levels if isinstance(level, FusedLevel)]
        device.load([source for source in sources if source is not None])
    for level in levels:
        if isinstance(level, FusedLevel):
            steps.append(level.bound())
        else:
            calls = [node.run if isinstance(node, LibraryCall) else node for node in level]
            steps.append(partial(device.side_by_side, calls))
    return steps


def schedule(nodes: list[Node]) -> list[FusedLevel | list[Node]]:
    """The launches and library calls in the order in which they run.

    The launches in a FusedLevel are done by one kernel. A list has calls that cannot be, and that
    may run concurrently.
    """
    waits_for = dependencies(nodes)
    followers: list[list[int]] = [[] for _ in nodes]
    for i, earlier in enumerate(waits_for):
        for j in earlier:
            followers[j].append(i)
    num_missing = [len(earlier) for earlier in waits_for]
    fusible = [can_be_fused(node) for node in nodes]
    ready = {i for i, n in enumerate(num_missing) if n == 0}
    levels = list[FusedLevel | list[Node]]()
    while ready:
        if done := sorted(i for i in ready if not fusible[i]):
            levels.append([nodes[i] for i in done])
        else:
            level, done = _next_level(nodes, ready, waits_for, followers, num_missing, fusible)
            levels.append(level)
        for i in done:
            for j in followers[i]:
                num_missing[j] -= 1
        ready |= {j for i in done for j in followers[i] if num_missing[j] == 0}
        ready.difference_update(done)
    return levels


def _next_level(
    nodes: list[Node], ready: set[int], waits_for: list[set[int]], followers: list[list[int]],
    num_missing: list[int], fusible: list[bool],
) -> tuple[FusedLevel, list[int]]:  # fmt: skip
    """(the launches that the next kernel does, the numbers of these launches).

    The kernel has ready launches, and launches that can follow them in it. By node: `waits_for` are
    earlier nodes, `followers` later ones, `num_missing` counts earlier nodes that have not run,
    `fusible` says whether such a kernel may contain it. No argument is changed.
    """
    level, done = FusedLevel(), dict[int, None]()
    num_done = dict[int, int]()
    candidates = sorted(ready)
    while candidates:
        i = heapq.heappop(candidates)
        node = nodes[i]
        assert isinstance(node, Launch)
        if not level.add(i, node, (j for j in waits_for[i] if j in done)):
            continue
        done[i] = None
        for j in followers[i]:
            num_done[j] = num_done.get(j, 0) + 1
            if num_done[j] == num_missing[j] and fusible[j]:
                heapq.heappush(candidates, j)
    return level, list(done)
