"""Replace phones in context by their HMMs, whose labels are transition ids (hmm-utils.h)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.fst.compose import compose_with_loops
from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.local_epsilon import remove_epsilons_locally
from nnet3tools.fst.weights import single
from nnet3tools.lang.context import Window, in_context, is_disambig
from nnet3tools.lang.self_loops import SelfLoops
from nnet3tools.nnet.hmm.topology import NO_PDF, HmmState
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency


@dataclass
class HmmGraphs:
    """Replaces phones by HMMs over transition ids, for one tree and transition model.

    `scale` multiplies log-probabilities; `_hmms` maps (phone, pdf of each pdf class) to an HMM.
    """

    tree: ContextDependency
    model: TransitionModel
    scale: float
    _hmms: dict[tuple[int, ...], Fst] = field(default_factory=dict)

    @cached_property
    def _loops(self) -> SelfLoops:
        return SelfLoops(self.model, self.scale)

    def expand(self, phones: Fst) -> Fst:
        """Replace the phones of an acceptor by HMMs with self-loops; inputs are transition ids.

        The result may contain epsilons. DataError for phones that the tree or model lacks.
        """
        context = in_context(phones, self.tree, self.model.topology)
        graph = compose_with_loops(self.transducer(context.windows), context.fst)
        return self._loops.added_to(graph).projected()

    def transducer(self, windows: Sequence[Window]) -> Fst:
        """The FST H: it reads transition ids and writes i for the phone in context windows[i]."""
        ids = iter(self.disambig_ids(windows))
        hmms = [Fst.linear([next(ids)]) if is_disambig(w) else self._hmm(w) for w in windows[1:]]
        return _loop_of(hmms)

    def disambig_ids(self, windows: Sequence[Window]) -> list[int]:
        """Labels, above all transition ids, for the windows that are disambiguation symbols."""
        count = sum(map(is_disambig, windows))
        first = self.model.num_transition_ids + 1
        return list(range(first, first + count))

    def only_ids(self, window: Window) -> tuple[int, int] | None:
        """The transition ids of the entry and the self-loop (or 0) of a one-state phone in context.

        None if the phone has other than one emitting state, can be skipped, is unknown, or has
        log-probabilities that are not finite.
        """
        if not {0, *self.model.topology.phones.tolist()}.issuperset(window):
            return None
        hmm, ids = self._hmm(window), self.model.transitions()
        if hmm.num_arcs != 1 or hmm.is_final[hmm.start] or not hmm.ilabels[0]:
            return None
        entry = int(hmm.ilabels[0])
        loops = np.flatnonzero(ids.is_self_loop & (ids.states == ids.states[entry])).tolist()
        usual = np.isfinite(self.model.log_probs[[entry, *loops]]).all()
        return (entry, next(iter(loops), 0)) if usual else None

    # -- HMMs

    @cached_property
    def _first_id(self) -> NDArray[np.int64]:
        counts = self.model.transitions_per_state()
        return np.cumsum(counts) - counts + 1

    @cached_property
    def _state_of_tuple(self) -> dict[tuple[int, ...], int]:
        return {tuple(row): number for number, row in enumerate(self.model.tuples.tolist())}

    def _hmm(self, window: Window) -> Fst:
        """The HMM of the central phone of `window`, a sequence of phones, without self-loops."""
        phone = window[self.tree.central]
        entry = self.model.topology.states(phone)
        num_classes = self.model.topology.num_pdf_classes(phone)
        pdfs = tuple(self.tree.pdf_of(window, pdf_class) for pdf_class in range(num_classes))
        if (hmm := self._hmms.get((phone, *pdfs))) is None:
            arcs = [self._arcs_of(phone, number, state, pdfs) for number, state in enumerate(entry)]
            finals = [NOT_FINAL] * (len(entry) - 1) + [0.0]
            hmm = remove_epsilons_locally(Fst.from_lists(0, finals, arcs)).scaled(self.scale)
            self._hmms[phone, *pdfs] = hmm
        return hmm

    def _arcs_of(
        self, phone: int, number: int, state: HmmState, pdfs: tuple[int, ...]
    ) -> list[ArcTuple]:
        """Arcs with transition ids from HMM state `number` of `phone`; `pdfs` is by pdf class."""
        arcs: list[ArcTuple] = []
        emitting = state.forward_pdf_class != NO_PDF
        for position, (target, probability) in enumerate(state.transitions):
            if target == number:
                continue
            if emitting:
                pair = pdfs[state.forward_pdf_class], pdfs[state.self_loop_pdf_class]
                label, log_prob = self._transition(phone, number, pair, position)
            else:
                label, log_prob = 0, single(np.log(np.float32(probability)))
            arcs.append((label, label, -log_prob, target))
        return arcs

    def _transition(
        self, phone: int, number: int, pdfs: tuple[int, int], position: int
    ) -> tuple[int, float]:
        """The id and the log-probability of one transition of state `number` in a phone's HMM.

        `position` is the transition's index in the state. `pdfs` are the state's pdfs for the
        forward transition and the self-loop. The log-probability is conditional on leaving the
        state.
        """
        if (state := self._state_of_tuple.get((phone, number, *pdfs))) is None:
            raise DataError(
                f"the tree gives state {number} of phone {phone} the pdfs {pdfs[0]} and {pdfs[1]}, "
                "which the transition model lacks: they do not belong together"
            )
        label = int(self._first_id[state]) + position
        log_prob = single(float(self.model.log_probs[label]) - self._loops.leaving_log_probs[state])
        return label, log_prob


def _loop_of(hmms: list[Fst]) -> Fst:
    """An FST that accepts any sequence of HMM paths and writes the position of each HMM, from 1.

    An HMM object that stands in the list several times is added once. An HMM with a single arc from
    its start begins in the loop state; other HMMs follow an epsilon arc.
    """
    arcs: list[list[ArcTuple]] = [[]]
    entries: dict[int, tuple[int, float, int]] = {}
    for number, hmm in enumerate(hmms, start=1):
        if (entry := entries.get(id(hmm))) is not None:
            label, weight, target = entry
            arcs[0].append((label, number, weight, target))
        elif hmm.num_states:
            entries[id(hmm)] = _add_to_loop(arcs, hmm, number)
    finals = [0.0] + [NOT_FINAL] * (len(arcs) - 1)
    return Fst.from_lists(0, finals, arcs)


def _add_to_loop(arcs: list[list[ArcTuple]], hmm: Fst, number: int) -> tuple[int, float, int]:
    """Add HMM `number` as a loop at state 0; return its entry arc as (label, weight, target)."""
    of_hmm, finals, start = hmm.arc_lists(), hmm.finals.tolist(), hmm.start
    shared = (
        len(of_hmm[start]) == 1
        and finals[start] == NOT_FINAL
        and not (hmm.nextstates == start).any()
    )
    places: list[int] = []
    for state in range(hmm.num_states):
        if shared and state == start:
            places.append(0)
        else:
            places.append(len(arcs))
            arcs.append([])
    entry = (0, 0.0, places[start])
    if not shared:
        arcs[0].append((0, number, 0.0, places[start]))
    for state, of_state in enumerate(of_hmm):
        for label, _, weight, target in of_state:
            if shared and state == start:
                entry = (label, weight, places[target])
                arcs[0].append((label, number, weight, places[target]))
            else:
                arcs[places[state]].append((label, 0, weight, places[target]))
        if finals[state] != NOT_FINAL:
            arcs[places[state]].append((0, 0, finals[state], 0))
    return entry
