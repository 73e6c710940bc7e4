"""Viterbi search with beams over a decoding graph, which keeps a lattice (LatticeFasterDecoder).

A token is a graph state that is reached at a frame, with the cost of the best path to it. A frame's
tokens are arrays in the order in which Kaldi creates them, because the first of equal paths wins.
With a C compiler native/search.c does the work; this module is its reference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.frames import NO_LINKS, Frame, Links, TokenLattice
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.options import SearchOptions
from nnet3tools.decoding.pruning import prune
from nnet3tools.errors import DataError
from nnet3tools.fst.fst import EPSILON

_INFINITY = np.float32(np.inf)


_LEAST_HASH_SIZE = 1000

_MOST_VISITS = 100_000
"""If a frame visits more epsilon arcs than this, plus 1000 for each token, there is a loop."""


class Decoder:
    """Beam search in NumPy: `start`, then `advance` with each piece of outputs, then `finish`."""

    def __init__(self, graph: DecodingGraph, options: SearchOptions) -> None:
        """Prepare searches over `graph`, which other decoders may share."""
        self.graph = graph
        self._options = options
        self._place = np.zeros(graph.num_states, np.intp)
        self._hash_size = _LEAST_HASH_SIZE  # as in Kaldi, it never shrinks
        self.frames: list[Frame] = []

    # -- running

    def start(self) -> None:
        """Begin a new utterance."""
        states = np.array([self.graph.fst.start], np.int32)
        self._place[self.graph.fst.start] = 0
        costs = np.zeros(1, np.float32)
        self.frames = [self._frame(states, costs, self._options.beam, NO_LINKS, 0.0)]

    def advance(self, loglikes: NDArray[np.float32]) -> None:
        """Decode frames: `loglikes` (frames, pdfs) are log-likelihoods times the acoustic scale."""
        self.graph.check_outputs(loglikes)
        interval = self._options.prune_interval
        for row in loglikes:
            if self.num_frames % interval == 0 and self.num_frames:
                extra = np.zeros(len(self.frames[-1].states), np.float32)
                self._prune(extra, self.num_frames - interval)
            self.frames.append(self._next(self.frames[-1], row))

    def finish(self) -> None:
        """Prune tokens and links that are on no path within the lattice beam (FinalizeDecoding).

        Paths end in final states if one has been reached; otherwise anywhere.
        """
        frame = self.frames[-1]
        costs = frame.costs
        if self.reached_final():
            costs = costs + self.graph.finals[frame.states]
        self._prune(costs - costs.min(initial=_INFINITY), 0)

    def _prune(self, extra: NDArray[np.float32], first_new: int) -> None:
        prune(
            self.frames,
            self.graph.fst.weights,
            np.float32(self._options.lattice_beam),
            extra,
            first_new,
        )

    @property
    def num_frames(self) -> int:
        """Number of frames decoded since `start`."""
        return len(self.frames) - 1

    @property
    def is_alive(self) -> bool:
        """Whether any token has survived the last frame."""
        return len(self.frames[-1].states) > 0

    def reached_final(self) -> bool:
        """Whether a token of the last frame is in a final state of the graph."""
        return bool((self.graph.finals[self.frames[-1].states] != _INFINITY).any())

    def token_lattice(self) -> TokenLattice:
        """All tokens of the utterance that have not been pruned, and the links between them."""
        return TokenLattice.of(self.frames)

    def trace(self) -> tuple[NDArray[np.int64], float]:
        """(graph arcs on the best path so far, relative cost of final states).

        Final costs do not decide the path. The relative cost is that of the best path to a final
        state minus that of the best path to any state: infinite if no final state is reached.
        """
        last = self.frames[-1]
        if not len(last.states):
            return np.zeros(0, np.int64), float("inf")
        token, number = int(last.costs.argmin()), self.num_frames
        relative = (last.costs + self.graph.finals[last.states]).min() - last.costs[token]
        arcs: list[int] = []
        steps = 0
        while number or token:
            frame = self.frames[number]
            before = self.frames[number - 1] if number else frame
            step, cost = self._cheapest(frame.emitting, before, token, _INFINITY)
            epsilon, _ = self._cheapest(frame.epsilon, frame, token, cost)
            steps = steps + 1 if epsilon >= 0 else 0
            if steps > len(frame.states):
                raise DataError("the decoding graph has an epsilon loop that makes paths cheaper")
            if max(step, epsilon) < 0:
                break
            links = frame.emitting if epsilon < 0 else frame.epsilon
            link = step if epsilon < 0 else epsilon
            number -= epsilon < 0
            arcs.append(int(links.arcs[link]))
            token = int(links.sources[link])
        return np.array(arcs[::-1], np.int64), float(relative)

    def _cheapest(
        self, links: Links, before: Frame, token: int, limit: np.float32
    ) -> tuple[int, np.float32]:
        """(link of the cheapest path to `token`, path cost); link -1 if no cost is below `limit`.

        `before` is the frame of the links' source tokens.
        """
        leading = np.flatnonzero(links.targets == token)
        costs = before.costs[links.sources[leading]] + links.acoustic[leading]
        costs = costs + self.graph.fst.weights[links.arcs[leading]]
        best = int(costs.argmin()) if len(costs) else -1
        if best < 0 or not costs[best] < limit:
            return -1, limit
        return int(leading[best]), costs[best]

    # -- one frame

    def _next(self, frame: Frame, loglikes: NDArray[np.float32]) -> Frame:
        if not len(frame.states):
            return frame
        graph, fst = self.graph, self.graph.fst
        order = self._hash_order(frame.states)
        costs = frame.costs[order]
        place = int(costs.argmin())
        best = costs[place]
        cutoff, beam = self._cutoff(costs, best)
        wanted = int(np.float32(len(order)) * np.float32(self._options.hash_ratio))
        self._hash_size = max(self._hash_size, wanted)
        # The lowest cost of a path that goes on from the best token by one emitting arc.
        state = frame.states[order[place]]
        _, arcs = graph.leaving(np.array([state]), np.zeros(1, np.intp), epsilon=False)
        further = fst.weights[arcs] + -best - loglikes[graph.pdfs[fst.ilabels[arcs]]] + best
        limit = np.fmin.reduce(further, initial=_INFINITY) + beam
        active = order[costs <= cutoff]
        sources, arcs = graph.leaving(frame.states[active], active, epsilon=False)
        acoustic = -best - loglikes[graph.pdfs[fst.ilabels[arcs]]]
        totals = frame.costs[sources] + acoustic + fst.weights[arcs]
        # Arcs that are too expensive compared with the best path so far are not followed.
        limits = np.fmin.accumulate(np.concatenate([[limit], totals + beam]), dtype=np.float32)
        kept = totals < limits[:-1]
        sources, arcs, acoustic, totals = sources[kept], arcs[kept], acoustic[kept], totals[kept]
        nextstates = fst.nextstates[arcs]
        states = self._new_states(nextstates)
        targets = self._place[nextstates]
        entered = np.full(len(states), _INFINITY)
        np.minimum.at(entered, targets, totals)
        return self._frame(
            states, entered, limits[-1], Links(sources, targets, arcs, acoustic), -best
        )

    def _frame(
        self,
        states: NDArray[np.int32],
        costs: NDArray[np.float32],
        limit: np.float32 | float,
        emitting: Links,
        offset: np.float32 | float,
    ) -> Frame:
        """A Frame of the tokens (states, costs) reached by `emitting` or then by epsilon arcs.

        Only tokens with costs below `limit` are added. The links' acoustic costs contain `offset`.
        """
        closed, costs, epsilon = self._closed(states, costs, np.float32(limit))
        return Frame(closed, costs, emitting, epsilon, np.float32(offset))

    def _hash_order(self, states: NDArray[np.int32]) -> NDArray[np.intp]:
        """Positions of `states` in the order in which Kaldi's hash list visits their tokens.

        Buckets come in the order of their first use, and the tokens of a bucket together.
        """
        _, first, bucket = np.unique(
            states % self._hash_size, return_index=True, return_inverse=True
        )
        return np.argsort(first[bucket], kind="stable")

    def _cutoff(
        self, costs: NDArray[np.float32], best: np.float32
    ) -> tuple[np.float32, np.float32]:
        """The cost limit for tokens of this frame, and the beam for the next one (GetCutoff).

        If there are at most `min_active` tokens, there is no limit. `best` is the lowest cost.
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

    def _new_states(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """The distinct states in order of first occurrence; sets each position in `_place`."""
        numbers = np.arange(len(states))
        self._place[states[::-1]] = numbers[::-1]  # the first occurrence of a state wins
        new = states[self._place[states] == numbers]
        self._place[new] = np.arange(len(new))
        return new

    def _closed(
        self, states: NDArray[np.int32], costs: NDArray[np.float32], limit: np.float32
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], Links]:
        """Follow epsilon arcs: (states, costs, links) of all tokens with costs below `limit`.

        The links are those of the epsilon arcs.
        """
        graph, fst = self.graph, self.graph.fst
        waiting = [t for t in self._hash_order(states).tolist() if graph.has_epsilon[states[t]]]
        if not waiting:
            return states, costs, NO_LINKS
        states, costs = self._followed(states, costs, limit, waiting)
        tokens = np.flatnonzero(graph.has_epsilon[states] & (costs < limit))
        sources, arcs = graph.leaving(states[tokens], tokens, epsilon=True)
        kept = costs[sources] + fst.weights[arcs] < limit
        sources, arcs = sources[kept], arcs[kept]
        targets = self._place[fst.nextstates[arcs]]
        return states, costs, Links(sources, targets, arcs, np.zeros(len(arcs), np.float32))

    def _followed(
        self,
        states: NDArray[np.int32],
        costs: NDArray[np.float32],
        limit: np.float32,
        waiting: list[int],
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(states, costs) of the given tokens and of tokens that epsilon arcs reach below `limit`.

        `waiting` has the numbers of tokens whose epsilon arcs are to be followed, last token first.
        A Python loop, as the order matters and a frame has few such arcs.
        """
        fst, has_epsilon, place = self.graph.fst, self.graph.has_epsilon, self._place
        reached, best = states.tolist(), list(costs)
        place_of = {state: token for token, state in enumerate(reached)}
        visits = 0
        while waiting:
            token = waiting.pop()
            visits += 1
            if visits > _MOST_VISITS + 1000 * len(reached):
                raise DataError("the decoding graph has an epsilon loop that makes paths cheaper")
            state, cost = reached[token], best[token]
            if not cost < limit:
                continue
            for arc in range(fst.offsets[state], fst.offsets[state + 1]):
                total, target = cost + fst.weights[arc], int(fst.nextstates[arc])
                if fst.ilabels[arc] != EPSILON or not total < limit:
                    continue
                if (known := place_of.get(target)) is None:
                    known = place_of[target] = len(reached)
                    place[target] = known
                    reached.append(target)
                    best.append(total)
                elif total < best[known]:
                    best[known] = total
                else:
                    continue
                if has_epsilon[target]:
                    waiting.append(known)
        return np.array(reached, np.int32), np.array(best, np.float32)
