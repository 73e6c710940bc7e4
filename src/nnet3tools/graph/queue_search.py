"""A replay of Kaldi's graph search with its queues, one cindex at a time.

`native/queue_search.c` does the same in C.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.computation_graph import COMPUTABLE, NOT_COMPUTABLE, UNKNOWN
from nnet3tools.graph.node_rules import ComponentRule, DescriptorRule
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.search_facts import SearchFacts


class QueueSearch:
    """Kaldi's breadth-first search of a graph, replayed to count the cindexes after each depth.

    The cindex ids are those of GraphBuilder.
    """

    def __init__(self, builder: GraphBuilder, request: ComputationRequest) -> None:
        store, size = builder.store, builder.store.size
        self.plan = plan = builder.plan
        self.facts = SearchFacts(builder)
        self.nodes: list[int] = store.nodes[:size].tolist()
        self.rows = _explored(builder)
        """By cindex, its dependencies as its node's rule gives them, padded with -1."""
        self.answers: dict[tuple[int, tuple[bool, ...]], bool] = {}
        self.is_input: list[bool] = store.is_input[:size].tolist()
        self.status = [COMPUTABLE if given else UNKNOWN for given in self.is_input]
        self.usable = [0] * size
        self.queued = [False] * size
        self.dependencies: list[list[int] | None] = [None] * size
        self.dependents: list[list[int]] = [[] for _ in range(size)]
        self.known = list(self.is_input)
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
        """The number of cindexes found after each hop, until the queue is empty."""
        while True:
            self.hop()
            yield self.num_cindexes
            if not self.queue:
                return

    def hop(self) -> None:
        """Process the queue, last in first out, as Kaldi's BuildGraphOneIter does.

        Cindexes that are queued during the hop wait for the next one.
        """
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
            # The common case: all can be computed. An input that is not given has no dependencies.
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
        if self._is_computable(cindex, tuple(status == COMPUTABLE for status in statuses)):
            return COMPUTABLE
        if self._is_computable(cindex, tuple(status != NOT_COMPUTABLE for status in statuses)):
            return UNKNOWN
        return NOT_COMPUTABLE

    def _is_computable(self, cindex: int, available: tuple[bool, ...]) -> bool:
        """Whether a cindex is computable if the dependencies that `available` flags are."""
        node = self.nodes[cindex]
        rule, case = self.plan.rules[node], (node, available)
        if isinstance(rule, DescriptorRule) and (remembered := self.answers.get(case)) is not None:
            return remembered  # for descriptors the Index does not matter
        row = np.array(self.rows[cindex], np.int32)
        self.answers[case] = answer = self.facts.is_computable(
            cindex, row, np.array(available, np.bool_)
        )
        return answer

    # -- usable counts, with explicit stacks because recurrences are deep

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

    # -- cindexes that GraphBuilder did not explore

    def _ask(self, cindex: int) -> list[int]:
        """The dependencies of a cindex that GraphBuilder did not explore."""
        found = self.facts.dependencies(cindex)
        self.rows.update(zip(found.ids.tolist(), found.rows.tolist(), strict=True))
        num_new = len(found.new_nodes)
        self.nodes += found.new_nodes.tolist()
        self.is_input += [False] * num_new
        self.status += [UNKNOWN] * num_new
        self.usable += [0] * num_new
        self.queued += [False] * num_new
        self.known += [False] * num_new
        self.dependencies += [None] * num_new
        self.dependents += ([] for _ in range(num_new))
        return self.rows[cindex]


def _explored(builder: GraphBuilder) -> dict[int, list[int]]:
    """By cindex, the dependencies of all cindexes that the builder has explored."""
    store = builder.store
    of_cindex: dict[int, list[int]] = {}
    for node, rows in enumerate(builder.dependency_rows):
        ids = np.flatnonzero((store.nodes[: store.size] == node) & (store.slots[: store.size] >= 0))
        if len(ids):
            of_cindex.update(zip(ids.tolist(), rows.take(store.slots[ids]).tolist(), strict=True))
    return of_cindex
