"""Compiles proto-supervisions to supervisions (ProtoSupervisionToSupervision)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nnet3tools.chain.proto_supervision import ProtoSupervision
from nnet3tools.chain.supervision import Supervision
from nnet3tools.fst.connect import breadth_first_sorted, connect
from nnet3tools.fst.epsilon import epsilon_arcs, remove_epsilons
from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst
from nnet3tools.io import log
from nnet3tools.lang.hmm_graph import HmmGraphs
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency


class SupervisionCompiler:
    """Compiles allowed phones by frame to acceptors of pdfs plus one, or of transition ids."""

    def __init__(
        self, tree: ContextDependency, model: TransitionModel, convert_to_pdfs: bool = True
    ) -> None:
        # The normalization FST adds the probabilities.
        self._graphs = HmmGraphs(tree, model, scale=0.0)
        self._model, self._convert = model, convert_to_pdfs

    @cached_property
    def _phones_and_labels(self) -> tuple[list[int], list[int]]:
        """Two lists, indexed by transition id: the id's phone, and its label in supervisions."""
        transitions = self._model.transitions()
        ids = np.arange(len(transitions.pdfs))
        labels = transitions.pdfs + 1 if self._convert else ids
        return transitions.phones.tolist(), labels.tolist()

    def compile(self, proto: ProtoSupervision) -> Supervision | None:
        """The supervision; None, after a warning, if the phones need more frames than there are."""
        graph = self._graphs.expand(proto.fst)
        if epsilon_arcs(graph).any():
            graph = remove_epsilons(graph)
        fst = connect(self._in_time(graph, proto.allowed_phones))
        if not fst.num_states:
            log.warning("Supervision FST is empty (too many phones for too few frames?)")
            return None
        model = self._model
        label_dim = model.num_pdfs if self._convert else model.num_transition_ids
        num_frames = len(proto.allowed_phones)
        return Supervision(1.0, 1, num_frames, label_dim, breadth_first_sorted(fst))

    def _in_time(self, graph: Fst, allowed_phones: list[set[int]]) -> Fst:
        """The paths of `graph` with one arc for each frame t; its phone is in allowed_phones[t].

        States are pairs of a graph state and a frame, numbered in the order of their discovery.
        """
        if not graph.num_states:
            return graph
        phones, labels = self._phones_and_labels
        lists, finals = graph.arc_lists(), graph.finals.tolist()
        arcs: list[list[ArcTuple]] = []
        new_finals: list[float] = []
        here, begin = {graph.start: 0}, 0
        for allowed in allowed_phones:
            after: dict[int, int] = {}
            begin += len(here)
            for state in here:
                found: list[ArcTuple] = []
                for transition, _, weight, target in lists[state]:
                    if phones[transition] in allowed:
                        number = after.setdefault(target, len(after)) + begin
                        found.append((labels[transition], labels[transition], weight, number))
                arcs.append(found)
                new_finals.append(NOT_FINAL)
            here = after
        arcs += [[] for _ in here]
        new_finals += [finals[state] for state in here]
        return Fst.from_lists(0, new_finals, arcs)
