"""The course of Kaldi's graph search where cindexes need, and have, all of their dependencies.

So it is in feed-forward networks whose examples have all the context. Then nothing is ever given
up, and a hop of the search (ComputationGraphBuilder::BuildGraphOneIter) can be done with arrays:
which cindexes are in the queue, and in which order, decides all. `spot_checks` has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.tables import COMPUTABLE, all_true, concatenated_ranges
from nnet3tools.nnet.indexes import BoolArray, IntArray

__all__ = ["StrictSearch", "is_strict"]

_Places = NDArray[np.intp]


def is_strict(builder: GraphBuilder) -> bool:
    """Whether all that a builder has found, and not pruned yet, needs all its dependencies."""
    store, rules = builder.store, builder.plan.rules
    explored = [
        rule for rule, rows in zip(rules, builder.dependency_rows, strict=True) if rows.size
    ]
    return all(rule.is_strict for rule in explored) and all_true(
        store.status[: store.size] == COMPUTABLE
    )


class StrictSearch:
    """The queue of the search, hop by hop; cindexes have the ids that a builder gave them."""

    def __init__(self, builder: GraphBuilder, request: ComputationRequest) -> None:
        size = builder.store.size
        self._rows = _all_rows(builder)
        self._dependents, self._starts = _dependents(self._rows)
        self._computable: BoolArray = builder.store.is_input[:size].copy()
        self._known = self._computable.copy()
        self._rank: _Places = np.full(size, -1)
        """By cindex its place in the order of exploration; -1: not explored yet."""
        self._place: _Places = np.full(size, -1)
        """By cindex its place in the hop under way; -1: it has none."""
        self._scratch: _Places = np.empty(size, np.intp)
        self._num_explored = 0
        nnet = builder.plan.nnet
        outputs = [
            builder.graph.find(nnet.node_index(spec.name), spec.indexes) for spec in request.outputs
        ]
        self._queue: IntArray = self._distinct(np.concatenate(outputs))
        self._known[self._queue] = True

    def sizes(self) -> Iterator[int]:
        """After each hop, until the queue is empty, the number of cindexes found."""
        while True:
            self._hop()
            yield int(np.count_nonzero(self._known))
            if not len(self._queue):
                return

    def _hop(self) -> None:
        """The whole queue, last in first out; what is queued meanwhile waits for the next hop."""
        queue = self._queue[::-1]
        self._place[queue] = np.arange(len(queue))
        is_new = self._rank[queue] < 0
        new, old = queue[is_new], queue[~is_new]
        self._rank[new] = np.arange(self._num_explored, self._num_explored + len(new))
        self._num_explored += len(new)
        places, queued = self._explore(new)
        old = old[~self._computable[old]]
        if len(old):
            more_places, more_queued = self._decide(old)
            queued = np.concatenate([queued, more_queued])
            queued = queued[np.argsort(np.concatenate([places, more_places]), kind="stable")]
        self._place[queue] = -1
        self._queue = self._distinct(queued)

    def _explore(self, new: IntArray) -> tuple[_Places, IntArray]:
        """What is queued by cindexes that find their dependencies: those that are new, and them."""
        rows = np.concatenate([self._rows[new], new[:, None]], axis=1)
        wanted = (rows >= 0) & ~self._known[rows]
        wanted[:, -1] = True
        places = self._place[new][:, None].repeat(rows.shape[1], axis=1)[wanted]
        queued = rows[wanted]
        self._known[queued] = True
        return places, queued

    def _decide(self, cindexes: IntArray) -> tuple[_Places, IntArray]:
        """What is queued by those that turn out computable: explored cindexes that need them."""
        decided = cindexes[self._find_computable(cindexes)]
        self._computable[decided] = True
        starts = self._starts[decided]
        counts = self._starts[decided + 1] - starts
        dependents = self._dependents[concatenated_ranges(starts, counts)]
        places = self._place[decided].repeat(counts)
        # Those whose own turn in this hop is still to come are in the queue already.
        queued = (self._rank[dependents] >= 0) & (self._place[dependents] < places)
        dependents, places = dependents[queued], places[queued]
        order = np.lexsort((self._rank[dependents], places))
        return places[order], dependents[order]

    def _find_computable(self, cindexes: IntArray) -> BoolArray:
        """Which of these, in the order in which they are looked at, have all they need by then."""
        rows = self._rows[cindexes]
        there = (rows < 0) | self._computable[rows]
        found: BoolArray = np.all(there, axis=1)
        if all_true(found):
            return found
        turn = self._place[cindexes][:, None]
        ours = (self._place[rows] >= 0) & (self._place[rows] < turn) & ~there
        of_cindex = np.zeros(len(self._rank) + 1, bool)  # what -1 refers to is not looked at
        while ours.any():
            of_cindex[cindexes] = found
            now: BoolArray = np.all(there | (ours & of_cindex[rows]), axis=1)
            if all_true(now == found):
                break
            found = now
        return found

    def _distinct(self, cindexes: IntArray) -> IntArray:
        """Without repetitions; the first of each stays."""
        numbers = np.arange(len(cindexes))
        self._scratch[cindexes[::-1]] = numbers[::-1]
        return cindexes[self._scratch[cindexes] == numbers]


def _all_rows(builder: GraphBuilder) -> IntArray:
    """The dependencies of every cindex, (cindexes, width), padded with -1."""
    store = builder.store
    size = store.size
    nodes, slots = store.nodes[:size], store.slots[:size]
    found = [
        (np.flatnonzero((nodes == node) & (slots >= 0)), rows)
        for node, rows in enumerate(builder.dependency_rows)
        if rows.size
    ]
    taken = [(ids, rows.take(slots[ids])) for ids, rows in found]
    width = max((rows.shape[1] for _, rows in taken), default=0)
    all_rows = np.full((size, width), -1, np.int32)
    for ids, rows in taken:
        all_rows[ids, : rows.shape[1]] = rows
    return all_rows


def _dependents(rows: IntArray) -> tuple[IntArray, NDArray[np.int64]]:
    """The cindexes that depend on each one, one list after the other, and where each begins."""
    cindexes, columns = np.nonzero(rows >= 0)
    needed = rows[cindexes, columns]
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.bincount(needed, minlength=len(rows)), out=starts[1:])
    return cindexes[np.argsort(needed, kind="stable")].astype(np.int32), starts
