"""Compiles proto-supervisions to supervisions (ProtoSupervisionToSupervision)."""

from __future__ import annotations

from collections import defaultdict
from functools import cache, cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.proto_supervision import ProtoSupervision
from nnet3tools.chain.supervision import Supervision
from nnet3tools.fst.connect import breadth_first_sorted, connect
from nnet3tools.fst.epsilon import epsilon_arcs, remove_epsilons
from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.properties import Property, pair
from nnet3tools.io import log
from nnet3tools.lang.hmm_graph import HmmGraphs
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency

_MOST_CELLS = 1_000_000
"""The largest product of frames and phones for arrays of both: they take 30 bytes per element."""

_OF_SEQUENCES = int(
    (Property.ACCEPTOR | Property.TOP_SORTED | Property.ACCESSIBLE | Property.COACCESSIBLE)
    | (Property.NO_EPSILONS | Property.NO_I_EPSILONS | Property.NO_O_EPSILONS)
    | (Property.UNWEIGHTED | Property.UNWEIGHTED_CYCLES)
    | (Property.ACYCLIC | Property.INITIAL_ACYCLIC)
)
_SORTED = Property.I_LABEL_SORTED | Property.O_LABEL_SORTED
_DETERMINISTIC = Property.I_DETERMINISTIC | Property.O_DETERMINISTIC


class SupervisionCompiler:
    """Compiles allowed phones by frame to acceptors of pdfs plus one, or of transition ids."""

    def __init__(
        self, tree: ContextDependency, model: TransitionModel, convert_to_pdfs: bool = True
    ) -> None:
        # The normalization FST adds the probabilities.
        self._graphs = HmmGraphs(tree, model, scale=0.0)
        self._only_ids = cache(self._graphs.only_ids)
        self._model, self._convert = model, convert_to_pdfs

    @cached_property
    def _labels(self) -> NDArray[np.int32]:
        """The label of each transition id in supervisions, indexed by transition id."""
        pdfs = self._model.transitions().pdfs
        return pdfs + np.int32(1) if self._convert else np.arange(len(pdfs), dtype=np.int32)

    @cached_property
    def _phones_and_labels(self) -> tuple[list[int], list[int]]:
        """Two lists, indexed by transition id: the id's phone, and its label in supervisions."""
        return self._model.transitions().phones.tolist(), self._labels.tolist()

    def compile(self, proto: ProtoSupervision) -> Supervision | None:
        """The supervision; None, after a warning, if the phones need more frames than there are."""
        if (fst := self._of_sequence(proto)) is None:
            graph = self._graphs.expand(proto.fst)
            if epsilon_arcs(graph).any():
                graph = remove_epsilons(graph)
            fst = breadth_first_sorted(connect(self._in_time(graph, proto.allowed_phones)))
        if not fst.num_states:
            log.warning("Supervision FST is empty (too many phones for too few frames?)")
            return None
        model = self._model
        label_dim = model.num_pdfs if self._convert else model.num_transition_ids
        return Supervision(1.0, 1, len(proto.allowed_phones), label_dim, fst)

    def _of_sequence(self, proto: ProtoSupervision) -> Fst | None:
        """The FST made without a graph, in a tenth of the time; None if a phone needs a graph."""
        phones, tree = proto.sequence, self._graphs.tree
        if len(phones) * len(proto.allowed_phones) > _MOST_CELLS:
            return None
        around = [0] * tree.central + phones + [0] * tree.width
        ids = [self._only_ids(tuple(around[i : i + tree.width])) for i in range(len(phones))]
        if not ids or not all(ids):
            return None
        return _sequence_in_time(phones, self._labels[np.array(ids)], proto.allowed_phones)

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


def _sequence_in_time(
    phones: list[int], labels: NDArray[np.int32], allowed_phones: list[set[int]]
) -> Fst:
    """The connected FST, in breadth-first order, of all allowed times of a sequence of phones.

    `labels` (phones, 2) are the labels of a phone's first and of each further frame; those are 0 if
    it has one frame. FST states are (frame, number of phones begun), the last phone first.
    """
    # Bit n of an integer stands for the state in which n phones have begun.
    bits: dict[int, int] = defaultdict(int)
    for number, phone in enumerate(phones, start=1):
        bits[phone] |= 1 << number
    stay = sum((label > 0) << number for number, label in enumerate(labels[:, 1].tolist(), start=1))
    allowed = [sum(map(bits.__getitem__, of_frame)) for of_frame in allowed_phones]
    begun = accumulate(allowed, lambda at, ok: (at << 1 | at & stay) & ok, initial=1)
    can_end = accumulate(
        allowed[::-1], lambda at, ok: (at & ok) >> 1 | at & ok & stay, initial=1 << len(phones)
    )
    size, num_bytes = len(phones) + 1, len(phones) // 8 + 1
    rows = [
        (a & b).to_bytes(num_bytes, "big") for a, b in zip([*begun][::-1], can_end, strict=True)
    ]
    packed = np.frombuffer(b"".join(rows[::-1]), np.uint8).reshape(-1, num_bytes)
    kept = np.unpackbits(packed, axis=1)[:, -size:].view(bool)
    if not kept.any():
        return Fst.empty()
    label_of = np.zeros((size, 2), np.int32)  # columns: the arc to the next phone, the self-loop
    label_of[1:, 0], label_of[:-1, 1] = labels[::-1].T
    has_arc = np.zeros((len(allowed), size, 2), bool)
    np.logical_and(kept[:-1, 1:], kept[1:, :-1], out=has_arc[:, 1:, 0])
    np.logical_and(kept[:-1] & kept[1:], label_of[:, 1] > 0, out=has_arc[:, :, 1])
    arcs = np.flatnonzero(has_arc)
    cells = arcs >> 1
    numbers = kept.cumsum(dtype=np.int32) - np.int32(1)
    finals = np.full(numbers[-1] + 1, NOT_FINAL, np.float32)
    finals[-1] = 0.0
    found = label_of.ravel()[arcs % (2 * size)]
    steps = (found[1:] - found[:-1])[cells[1:] == cells[:-1]]
    properties = (
        _OF_SEQUENCES
        | pair(_SORTED, not (steps < 0).any())
        | pair(_DETERMINISTIC, bool(steps.all()))
        | pair(Property.STRING, len(arcs) == len(allowed))
    )
    return Fst(
        0,
        finals,
        np.searchsorted(numbers[cells], np.arange(len(finals) + 1)),
        *(found, found, np.zeros(len(arcs), np.float32)),
        numbers[cells + len(phones) + (arcs & 1)],
        properties,
    )
