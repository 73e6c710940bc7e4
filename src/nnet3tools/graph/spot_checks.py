"""The random numbers that Kaldi's graph builder spends on checking itself.

Kaldi decides with one stream of rand() which minibatches store statistics, self-repair or are
constrained, and its ComputationGraphBuilder (nnet-computation-graph.cc) draws from that stream to
choose when and what to check. Training repeats Kaldi's decisions only if the same numbers go. How
many go depends on how many cindexes there are after each hop of Kaldi's breadth-first search, so
this module replays its queues, for the small request that shortcut compilation compiles: one
cindex at a time where some cannot be computed, or not all of their dependencies are needed, and
with arrays (strict_search.py), some ten times as fast, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from nnet3tools import tensor
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.node_rules import ComponentRule, DescriptorRule
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.strict_search import StrictSearch, is_strict
from nnet3tools.graph.tables import COMPUTABLE, NOT_COMPUTABLE, UNKNOWN
from nnet3tools.nnet.indexes import KeyArray

__all__ = ["QueueSearch", "draw_graph_checks"]

_MAX_HOPS = 10000


def draw_graph_checks(builder: GraphBuilder, request: ComputationRequest) -> None:
    """Draw as many numbers from `tensor.random` as building this request's graph costs Kaldi.

    `builder` has explored the request, and it alone, and has not pruned anything yet.
    """
    search = StrictSearch if is_strict(builder) else QueueSearch
    num_cindexes = 0
    for hop, num_cindexes in enumerate(islice(search(builder, request).sizes(), _MAX_HOPS - 1), 1):
        if tensor.random.rand_int(1, hop + 1) == 1:
            _draw_check(num_cindexes)
    if tensor.random.rand_int(1, 2) == 1:
        _draw_check(num_cindexes)


def _draw_check(num_cindexes: int) -> None:
    """ComputationGraphBuilder::Check: a number for each cindex looked at, one for the next step."""
    cindex, largest_step = 0, num_cindexes // 100
    while cindex < num_cindexes:
        tensor.random.rand_int(0, cindex)
        cindex += 1 + tensor.random.rand_int(0, largest_step)


class QueueSearch:
    """Kaldi's queues over the cindexes, by the ids that our own builder gives them."""

    def __init__(self, builder: GraphBuilder, request: ComputationRequest) -> None:
        store, size = builder.store, builder.store.size
        self.plan = plan = builder.plan
        self.nodes: list[int] = store.nodes[:size].tolist()
        self.keys: list[int] = store.keys[:size].tolist()
        self.rows = _explored(builder)
        """By cindex its dependencies as its node's rule gives them, -1 for none."""
        self.answers: dict[tuple[int, tuple[bool, ...]], bool] = {}
        self.is_input: list[bool] = store.is_input[:size].tolist()
        self.status = [COMPUTABLE if given else UNKNOWN for given in self.is_input]
        self.usable = [0] * size
        self.queued = [False] * size
        self.dependencies: list[list[int] | None] = [None] * size
        self.dependents: list[list[int]] = [[] for _ in range(size)]
        self.known = list(self.is_input)
        self.ids: dict[tuple[int, int], int] = {}
        self.num_cindexes = sum(self.is_input)
        self.queue: list[int] = []
        self.next: list[int] = []
        for spec in request.outputs:
            node = plan.nnet.node_index(spec.name)
            for cindex in builder.graph.find(node, spec.indexes).tolist():
                self.usable[cindex] = 1
                self._discover(cindex)
        self.queue, self.next = self.next, []

    def sizes(self) -> Iterator[int]:
        """After each hop, until the queue is empty, the number of cindexes found."""
        while True:
            self.hop()
            yield self.num_cindexes
            if not self.queue:
                return

    def hop(self) -> None:
        """BuildGraphOneIter: the whole queue, last in first out; cindexes queued meanwhile wait."""
        queued, usable, dependencies = self.queued, self.usable, self.dependencies
        for cindex in reversed(self.queue):
            queued[cindex] = False
            if usable[cindex] != 0:
                if dependencies[cindex] is None:
                    self._explore(cindex)
                elif self.status[cindex] == UNKNOWN:
                    self._decide(cindex)
        self.queue, self.next = self.next, []

    def _push(self, cindex: int) -> None:
        if not self.queued[cindex]:
            self.queued[cindex] = True
            self.next.append(cindex)

    def _discover(self, cindex: int) -> None:
        self.known[cindex] = True
        self.num_cindexes += 1
        self._push(cindex)

    def _explore(self, cindex: int) -> None:
        if (row := self.rows.get(cindex)) is None:
            row = self._ask(cindex)
        dependencies = row if len(row) == 1 else list(dict.fromkeys(row))
        if -1 in dependencies:
            dependencies = [dependency for dependency in dependencies if dependency >= 0]
        known = self.known
        for dependency in dependencies:
            if not known[dependency]:
                self._discover(dependency)
        self.dependencies[cindex] = dependencies
        for dependency in dependencies:
            self.dependents[dependency].append(cindex)
            self._count_up(dependency)
        self._push(cindex)

    def _decide(self, cindex: int) -> None:
        statuses, queued = self.status, self.queued
        status = COMPUTABLE
        for dependency in self.dependencies[cindex] or (-1,):
            # Mostly all can be computed; an input that is not given has no dependencies.
            if dependency < 0 or statuses[dependency] != COMPUTABLE:
                status = self._judge(cindex)
                break
        if status == UNKNOWN:
            return
        statuses[cindex] = status
        for dependent in self.dependents[cindex]:
            if not queued[dependent] and statuses[dependent] == UNKNOWN:
                queued[dependent] = True
                self.next.append(dependent)
        if status == NOT_COMPUTABLE:
            for dependency in self.dependencies[cindex] or ():
                self._count_down(dependency)

    def _judge(self, cindex: int) -> int:
        node = self.nodes[cindex]
        if node in self.plan.input_nodes:
            return COMPUTABLE if self.is_input[cindex] else NOT_COMPUTABLE
        dependencies = self.dependencies[cindex] or []
        states = {self.status[dependency] for dependency in dependencies}
        if states <= {COMPUTABLE}:
            return COMPUTABLE
        rule = self.plan.rules[node]
        if rule.needs_all:
            return NOT_COMPUTABLE if NOT_COMPUTABLE in states else UNKNOWN
        if states == {UNKNOWN} and isinstance(rule, ComponentRule):
            return UNKNOWN  # no component can do without any input
        statuses = [self.status[d] if d >= 0 else NOT_COMPUTABLE for d in self.rows[cindex]]
        if self._can(cindex, tuple(status == COMPUTABLE for status in statuses)):
            return COMPUTABLE
        if self._can(cindex, tuple(status != NOT_COMPUTABLE for status in statuses)):
            return UNKNOWN
        return NOT_COMPUTABLE

    def _can(self, cindex: int, available: tuple[bool, ...]) -> bool:
        """Whether a cindex can be computed from those of its dependencies that are available."""
        node = self.nodes[cindex]
        rule, case = self.plan.rules[node], (node, available)
        if isinstance(rule, DescriptorRule) and (remembered := self.answers.get(case)) is not None:
            return remembered  # for descriptors the Index does not matter
        row = np.array([self.rows[cindex]], np.int32)
        row_keys = np.array([[self.keys[d] for d in self.rows[cindex]]], np.int64)
        keys = np.array([self.keys[cindex]], np.int64)
        self.answers[case] = answer = bool(
            rule.used(keys, row, row_keys, np.array([available]))[0][0]
        )
        return answer

    # -- usable counts; explicit stacks, for recurrences are deep

    def _count_up(self, cindex: int) -> None:
        if self.usable[cindex] > 0 or not self.dependencies[cindex]:
            self.usable[cindex] += 1
            if self.usable[cindex] == 1 and self.status[cindex] == UNKNOWN:
                self._push(cindex)
            return
        stack: list[tuple[int, Iterator[int]]] = []
        self._enter_up(cindex, stack)
        while stack:
            top, rest = stack[-1]
            if (dependency := next(rest, None)) is not None:
                self._enter_up(dependency, stack)
                continue
            stack.pop()
            if self.status[top] == UNKNOWN:
                self._push(top)

    def _enter_up(self, cindex: int, stack: list[tuple[int, Iterator[int]]]) -> None:
        self.usable[cindex] += 1
        if self.usable[cindex] == 1 and self.status[cindex] != NOT_COMPUTABLE:
            stack.append((cindex, iter(self.dependencies[cindex] or ())))

    def _count_down(self, cindex: int) -> None:
        stack = [cindex]
        while stack:
            unused = stack.pop()
            self.usable[unused] -= 1
            if self.usable[unused] == 0 and self.status[unused] != NOT_COMPUTABLE:
                stack += self.dependencies[unused] or ()

    # -- cindexes that our builder had no need to look at

    def _ask(self, cindex: int) -> list[int]:
        """Find the dependencies of a cindex by its node's rule."""
        if not self.ids:
            self.ids = {pair: i for i, pair in enumerate(zip(self.nodes, self.keys, strict=True))}
        key = np.array([self.keys[cindex]], np.int64)
        rows = self.plan.rules[self.nodes[cindex]].dependencies(key, self._ids)
        row: list[int] = rows[0].tolist()
        self.rows[cindex] = row
        return row

    def _ids(self, node: int, keys: KeyArray) -> np.ndarray:
        return np.array([self._id(node, key) for key in keys.tolist()], np.int32)

    def _id(self, node: int, key: int) -> int:
        if (known := self.ids.get((node, key))) is not None:
            return known
        self.ids[node, key] = made = len(self.nodes)
        self.nodes.append(node)
        self.keys.append(key)
        self.is_input.append(False)
        self.status.append(UNKNOWN)
        self.usable.append(0)
        self.queued.append(False)
        self.known.append(False)
        self.dependencies.append(None)
        self.dependents.append([])
        return made


def _explored(builder: GraphBuilder) -> dict[int, list[int]]:
    """The dependencies of all cindexes that the builder has explored."""
    store = builder.store
    of_cindex: dict[int, list[int]] = {}
    for node, rows in enumerate(builder.dependency_rows):
        ids = np.flatnonzero((store.nodes[: store.size] == node) & (store.slots[: store.size] >= 0))
        if len(ids):
            of_cindex.update(zip(ids.tolist(), rows.take(store.slots[ids]).tolist(), strict=True))
    return of_cindex
