"""Converts supervisions to end-to-end ones, which keep the phones of a chunk without their times.

The labels of the given supervisions are transition ids (Kaldi's ConvertSupervisionToUnconstrained).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools import draws
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.determinize import determinize
from nnet3tools.fst.encode import decoded, encoded
from nnet3tools.fst.epsilon import remove_epsilons
from nnet3tools.fst.fst import EPSILON, Fst
from nnet3tools.fst.minimize import minimize_acyclic
from nnet3tools.fst.partition import minimize_encoded
from nnet3tools.io import log
from nnet3tools.lang.self_loops import SelfLoops
from nnet3tools.nnet.hmm.transition_model import TransitionModel


class UnconstrainedConverter:
    """Converts supervisions of one model's transition ids to end-to-end supervisions."""

    def __init__(self, model: TransitionModel) -> None:
        self._model, self._transitions = model, model.transitions()
        self._loops = SelfLoops(model, scale=0.0)

    def convert(self, supervision: Supervision) -> Supervision | None:
        """End-to-end supervision with the pdfs of a random path; None, with a warning, if empty.

        DataError if the supervision is end-to-end already or not of the model's transition ids.
        """
        num_ids = self._model.num_transition_ids
        if supervision.label_dim != num_ids or supervision.is_e2e:
            raise DataError(
                f"the supervision is for {supervision.label_dim} labels, expected plain "
                f"supervision of the model's {num_ids} transition ids (made with "
                "--convert-to-pdfs=false)"
            )
        fst = remove_epsilons(supervision.fst)
        if not fst.num_states:
            log.warning("Supervision FST became empty.")
            return None
        path = _random_path(fst)
        # The chunk may begin within a phone, and so with a self-loop.
        loops = self._transitions.is_self_loop[fst.ilabels] & (fst.sources != fst.start)
        entering = fst.relabelled(np.where(loops, np.int32(EPSILON), fst.ilabels))
        phones = minimize_acyclic(determinize(remove_epsilons(entering)))
        graph = self._loops.added_to(phones)
        labels = np.where(graph.ilabels > 0, self._transitions.pdfs[graph.ilabels] + 1, EPSILON)
        whole = determinize(remove_epsilons(graph.relabelled(labels.astype(np.int32))))
        codes_of, codes = encoded(whole)
        small = decoded(minimize_encoded(codes_of), codes)
        if not small.num_states:
            log.warning("Supervision FST became empty.")
            return None
        return replace(
            supervision,
            label_dim=self._model.num_pdfs,
            fst=Fst.empty(),
            e2e_fsts=(small,),
            alignment_pdfs=self._transitions.pdfs[path],
        )


def _random_path(fst: Fst) -> NDArray[np.int32]:
    """The labels of a random path; at each state all arcs are equally likely."""
    labels: list[int] = []
    state = fst.start
    while True:
        begin, end = fst.offsets[state : state + 2].tolist()
        arc = draws.rand_int(begin, end - 1 + bool(fst.is_final[state]))
        if arc == end:
            return np.array(labels, np.int32)
        labels.append(int(fst.ilabels[arc]))
        state = int(fst.nextstates[arc])
