"""Adding the self-loops of HMM states to graphs of transition ids (AddSelfLoops of hmm-utils.h).

A self-loop follows the transition that enters its state, as in all chain models.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.weights import single
from nnet3tools.nnet.hmm.transition_model import TransitionModel

_LEAST_PROBABILITY = 1e-10


class SelfLoops:
    """Adds self-loops to graphs over transition ids; `scale` multiplies log-probabilities."""

    def __init__(self, model: TransitionModel, scale: float) -> None:
        self._model, self._scale = model, scale

    @cached_property
    def _self_loop_ids(self) -> list[int]:
        """For each transition state, the transition id of its self-loop; 0 if it has none."""
        transitions = self._model.transitions()
        loops = np.zeros(len(self._model.tuples), np.int64)
        ids = np.flatnonzero(transitions.is_self_loop)
        loops[transitions.states[ids]] = ids
        return loops.tolist()

    @cached_property
    def leaving_log_probs(self) -> list[float]:
        """For each transition state, the log-probability of leaving it, in float32."""
        loops = np.array(self._self_loop_ids)
        probs = np.where(loops > 0, np.exp(self._model.log_probs[loops]), np.float32(0))
        left = np.maximum(np.float32(1.0) - probs, np.float32(_LEAST_PROBABILITY))
        return np.where(loops > 0, np.log(left), np.float32(0)).tolist()

    @cached_property
    def _states_of_ids(self) -> list[int]:
        return self._model.transitions().states.tolist()

    def added_to(self, fst: Fst) -> Fst:
        """A copy of `fst` with the self-loop of the entering transition added at each state.

        A state that transitions of several transition states enter is split first. The arcs that
        leave a state are multiplied by the probability of leaving. Self-loops write nothing.
        """
        if not fst.num_states:
            return fst
        arcs, finals = fst.arc_lists(), fst.finals.tolist()
        self._separate(arcs, finals, fst.start)
        entered = [-1] * len(arcs)
        for of_state in arcs:
            for label, _, _, target in of_state:
                entered[target] = self._states_of_ids[label]
        for number, state in enumerate(entered):
            if state >= 0:
                self._add_self_loop(number, state, arcs, finals)
        return Fst.from_lists(fst.start, finals, arcs)

    def _separate(self, arcs: list[list[ArcTuple]], finals: list[float], start: int) -> None:
        """Split states of the graph (`arcs`, `finals`), in place: one transition state enters each.

        If several transition states lead to a graph state, each leads to a new state instead, and
        epsilons lead from these to the old state.
        """
        nothing, epsilon = -2, -1
        classes = [nothing] * len(arcs)
        classes[start] = epsilon
        several = set()
        for of_state in arcs:
            for label, _, _, target in of_state:
                state = self._states_of_ids[label]
                if classes[target] == nothing:
                    classes[target] = state
                elif classes[target] != state:
                    several.add(target)
        if not several:
            return
        new: dict[tuple[int, int], int] = {}
        for number in range(len(arcs)):
            for place, (label, olabel, weight, target) in enumerate(arcs[number]):
                if not label or target not in several:
                    continue
                key = target, self._states_of_ids[label]
                if (between := new.get(key)) is None:
                    between = new[key] = len(arcs)
                    arcs.append([(0, 0, 0.0, target)])
                    finals.append(NOT_FINAL)
                arcs[number][place] = (label, olabel, weight, between)

    def _add_self_loop(
        self, number: int, state: int, arcs: list[list[ArcTuple]], finals: list[float]
    ) -> None:
        cost = single(-self.leaving_log_probs[state] * self._scale)
        if cost:
            arcs[number] = [(i, o, single(w + cost), t) for i, o, w, t in arcs[number]]
            finals[number] = single(finals[number] + cost)
        if label := self._self_loop_ids[state]:
            weight = single(-float(self._model.log_probs[label]) * self._scale)
            arcs[number].append((label, 0, weight, number))
