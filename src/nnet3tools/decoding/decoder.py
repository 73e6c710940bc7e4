"""Viterbi search with beams over a decoding graph, which keeps a lattice (LatticeFasterDecoder).

A frame's tokens (states of the graph that are reached at that time, with the cost of the best way)
are arrays, and a frame is a dozen array operations, however many tokens there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.frames import NO_LINKS, Frame, Links
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.pruning import prune
from nnet3tools.errors import DataError

__all__ = ["Decoder", "SearchOptions"]

_INFINITY = np.float32(np.inf)


@dataclass(frozen=True)
class SearchOptions:
    """Which tokens live on: those within `beam` of the best, but not more than `max_active`.

    What is on no path within `lattice_beam` of the best is forgotten.
    """

    beam: float
    max_active: int = 2**31 - 1
    min_active: int = 0
    beam_delta: float = 0.5
    lattice_beam: float = 0.0


_PRUNE_INTERVAL = 500
"""Frames between prunings that only save memory: a frame of AN4's graph has some 15 kB."""


class Decoder:
    """Decodes one utterance: `start`, then `advance` with outputs as they come."""

    def __init__(self, graph: DecodingGraph, options: SearchOptions) -> None:
        """The graph may be shared by decoders."""
        self.graph = graph
        self._options = options
        self._place = np.zeros(graph.num_states, np.intp)
        self.frames: list[Frame] = []

    # -- running

    def start(self) -> None:
        """Forget everything and begin an utterance."""
        states = np.array([self.graph.start], np.int32)
        self._place[self.graph.start] = 0
        entry_costs = np.zeros(1, np.float32)
        self.frames = [self._frame(states, entry_costs, self._options.beam, NO_LINKS, 0.0)]

    def advance(self, loglikes: NDArray[np.float32]) -> None:
        """Decode some more frames, given (frames, pdfs) log-likelihoods times acoustic scale."""
        for row in loglikes:
            self.frames.append(self._next(self.frames[-1], row))
            if self.num_frames % _PRUNE_INTERVAL == 0:
                extra = np.zeros(len(self.frames[-1].states), np.float32)
                self._prune(extra, self.num_frames - _PRUNE_INTERVAL)

    def finish(self, use_final: bool = True) -> None:
        """Forget what is on no path within the lattice beam of the best one (FinalizeDecoding).

        With `use_final` paths end in final states, if some have been reached; else anywhere.
        """
        frame = self.frames[-1]
        costs = frame.costs
        if use_final and self.reached_final():
            costs = costs + self.graph.finals[frame.states]
        self._prune(costs - costs.min(initial=_INFINITY), 0)

    def _prune(self, extra: NDArray[np.float32], first_new: int) -> None:
        prune(self.frames, self.graph, np.float32(self._options.lattice_beam), extra, first_new)

    @property
    def num_frames(self) -> int:
        """How many frames have been decoded."""
        return len(self.frames) - 1

    @property
    def is_alive(self) -> bool:
        """Whether there are tokens."""
        return len(self.frames[-1].states) > 0

    def reached_final(self) -> bool:
        """Whether some token is in a final state."""
        return bool((self.graph.finals[self.frames[-1].states] != _INFINITY).any())

    # -- one frame

    def _next(self, frame: Frame, loglikes: NDArray[np.float32]) -> Frame:
        if not len(frame.states):
            return frame
        costs, table = frame.costs, self.graph.emitting
        best = costs.min()
        cutoff, beam = self._cutoff(costs, best)
        active = np.flatnonzero(costs <= cutoff)
        sources, arcs = table.leaving(frame.states[active], active)
        acoustic = -best - loglikes[table.pdfs[arcs]]
        totals = costs[sources] + acoustic + table.weights[arcs]
        limit = totals.min(initial=_INFINITY) + beam
        kept = totals < limit
        sources, arcs, acoustic, totals = sources[kept], arcs[kept], acoustic[kept], totals[kept]
        nextstates = table.nextstates[arcs]
        states = self._new_states(nextstates, 0)
        targets = self._place[nextstates]
        costs = np.full(len(states), _INFINITY)
        np.minimum.at(costs, targets, totals)
        return self._frame(states, costs, limit, Links(sources, targets, arcs, acoustic), -best)

    def _frame(
        self,
        states: NDArray[np.int32],
        entry_costs: NDArray[np.float32],
        limit: np.float32 | float,
        emitting: Links,
        offset: np.float32 | float,
    ) -> Frame:
        """With the tokens that epsilon arcs add."""
        closed, costs, epsilon = self._closed(states, entry_costs, np.float32(limit))
        return Frame(closed, costs, entry_costs, emitting, epsilon, np.float32(offset))

    def _cutoff(
        self, costs: NDArray[np.float32], best: np.float32
    ) -> tuple[np.float32, np.float32]:
        """The cost up to which tokens go on, and the beam for what becomes of them.

        Where there are no more than `min_active`, all go on, and all that becomes of them does.
        """
        options = self._options
        beam, delta = np.float32(options.beam), np.float32(options.beam_delta)
        within = best + beam
        if len(costs) > options.max_active:
            most = np.partition(costs, options.max_active)[options.max_active]
            if most < within:
                return most, most - best + delta
        if options.min_active > 0:
            least = _INFINITY
            if len(costs) > options.min_active:
                least = np.partition(costs, options.min_active)[options.min_active]
            if least > within:
                return least, least - best + delta
        return within, beam

    def _new_states(self, states: NDArray[np.int32], first: int) -> NDArray[np.int32]:
        """Each of these states once; `_place` numbers them from `first` on."""
        numbers = np.arange(len(states))
        self._place[states] = numbers  # of equal states the last one stays
        new = states[self._place[states] == numbers]
        self._place[new] = np.arange(first, first + len(new))
        return new

    def _places(self, states: NDArray[np.int32], reached: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of `reached` are among the frame's `states`: then `_place` says where."""
        places = self._place[reached]
        known = places < len(states)
        known[known] = states[places[known]] == reached[known]
        return known

    def _closed(
        self, states: NDArray[np.int32], costs: NDArray[np.float32], limit: np.float32
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], Links]:
        """The tokens and those that epsilon arcs reach from them below `limit`; these links."""
        table = self.graph.epsilon
        tokens = np.flatnonzero(table.counts[states])
        rounds = 0
        links = NO_LINKS
        while len(tokens):
            links, totals = self._epsilon_links(states, costs, tokens, limit)
            reached = table.nextstates[links.arcs]
            new = self._new_states(reached[~self._places(states, reached)], len(states))
            states = np.concatenate([states, new])
            costs = np.concatenate([costs, np.full(len(new), _INFINITY)])
            links.targets = self._place[reached]
            better = links.targets[totals < costs[links.targets]]
            np.minimum.at(costs, links.targets, totals)
            tokens = np.unique(better[table.counts[states[better]] > 0])
            rounds += 1
            if rounds > self.graph.num_states:
                raise DataError("the decoding graph has an epsilon loop that makes paths cheaper")
        if rounds > 1:  # links with the costs as they are in the end
            tokens = np.flatnonzero(table.counts[states])
            links, _ = self._epsilon_links(states, costs, tokens, limit)
            links.targets = self._place[table.nextstates[links.arcs]]
        return states, costs, links

    def _epsilon_links(
        self,
        states: NDArray[np.int32],
        costs: NDArray[np.float32],
        tokens: NDArray[np.intp],
        limit: np.float32,
    ) -> tuple[Links, NDArray[np.float32]]:
        """The links, with no targets yet, that leave some tokens and stay below `limit`."""
        table = self.graph.epsilon
        sources, arcs = table.leaving(states[tokens], tokens)
        totals = costs[sources] + table.weights[arcs]
        kept = totals < limit
        arcs = arcs[kept]
        return Links(sources[kept], arcs, arcs, np.zeros(len(arcs), np.float32)), totals[kept]
