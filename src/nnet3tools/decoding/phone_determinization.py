"""Determinization of a decoder's lattice, first on phones and words, then on words.

As Kaldi's DeterminizeLatticePhonePrunedWrapper. The first pass makes the second one cheap.
"""

from __future__ import annotations

import math

import numpy as np

from nnet3tools.decoding.determinization import determinized
from nnet3tools.decoding.labelled_lattice import LabelledLattice, NewArcs, NewFinals
from nnet3tools.decoding.minimization import minimized
from nnet3tools.decoding.native.lattices import top_order_by
from nnet3tools.decoding.native.library import decoding_library
from nnet3tools.decoding.options import DeterminizeOptions
from nnet3tools.fst.depth_first import top_order
from nnet3tools.fst.fst import NOT_FINAL
from nnet3tools.fst.lattice import CompactLattice, Lattice, Strings
from nnet3tools.fst.lattice_conversion import compacted, expanded
from nnet3tools.io import log
from nnet3tools.nnet.hmm.transition_model import TransitionModel

_RETRY_CUTOFF, _MOST_TRIES = 0.5, 10


class PhoneDeterminizer:
    """Determinizes lattices of one acoustic model on phones, then on words, with pruning."""

    def __init__(self, model: TransitionModel, beam: float, options: DeterminizeOptions) -> None:
        """`beam` is the lattice beam."""
        self._options, self._beam = options, beam
        transitions = model.transitions()
        entered = (model.tuples[transitions.states, 1] == 0) & ~transitions.is_self_loop
        entered[0] = False
        self._phones = np.where(entered, transitions.phones, 0)

    def determinize(self, raw: Lattice) -> tuple[CompactLattice, bool]:
        """(lattice with one path for each word sequence, whether it is complete within the
        beam).
        """
        options = self._options
        if not (options.phone_determinize or options.word_determinize):
            log.warning(
                "Both --phone-determinize and --word-determinize are set to false, copying "
                "lattice without determinization."
            )
        lattice, complete = LabelledLattice.of(raw), True
        if options.phone_determinize:
            first_phone = 1 + int(raw.fst.olabels.max(initial=0))
            lattice, complete = self._run(self._with_phones(lattice, first_phone))
            lattice = _top_sorted(_without_phones(lattice, first_phone))
        if options.word_determinize:
            lattice, reached = self._run(lattice)
            complete &= reached
            made = lattice.compact()
        else:
            made = compacted(expanded(lattice.compact().connected()))
        if options.minimize and (options.phone_determinize or options.word_determinize):
            made = minimized(made)
        return made.connected(), complete

    def _run(self, lattice: LabelledLattice) -> tuple[LabelledLattice, bool]:
        """(determinized lattice, whether complete); uses a smaller beam if memory runs out."""
        beam = self._beam
        for attempt in range(_MOST_TRIES):
            made, reached = determinized(lattice, beam, self._options.delta, self._options.max_mem)
            if reached >= beam * _RETRY_CUTOFF or attempt + 1 == _MOST_TRIES:
                break
            beam = max(beam * math.sqrt(max(reached, 0.0) / beam), 0.5 * beam)
            log.log(
                f"Pruned state-level lattice with beam {beam:g} and retrying determinization with "
                "that beam."
            )
            lattice = _pruned(lattice, beam)
        return made, reached >= beam

    def _with_phones(self, lattice: LabelledLattice, first_phone: int) -> LabelledLattice:
        """The lattice with phone labels where phones begin, except on the start state's arcs.

        As in Kaldi, an arc that has a word keeps it; the phone label is on an additional arc after
        it.
        """
        begins, ends = lattice.strings.ends[:-1], lattice.strings.ends[1:]
        begins, ends = begins[: lattice.num_arcs], ends[: lattice.num_arcs]
        phones = np.zeros(lattice.num_arcs, np.int32)
        has_ids = (ends > begins) & (lattice.sources > 0)
        phones[has_ids] = self._phones[lattice.strings.ids[begins[has_ids]]]
        has_phone, has_word = phones > 0, lattice.labels > 0
        labels = np.where(has_phone & ~has_word, first_phone + phones, lattice.labels)
        both = np.flatnonzero(has_phone & has_word)
        size, more = lattice.num_states, len(both)
        targets = lattice.targets.copy()
        targets[both] = np.arange(size, size + more)
        costs = np.zeros(more, np.float32)
        arcs = NewArcs(
            np.arange(size, size + more),
            (first_phone + phones[both]).astype(np.int32),
            costs,
            costs,
            lattice.targets[both],
            Strings.none(more),
        )
        finals = NewFinals(
            np.concatenate([lattice.final_graph, np.full(more, NOT_FINAL, np.float32)]),
            np.concatenate([lattice.final_acoustic, costs]),
            lattice.final_strings.joined(Strings.none(more)),
        )
        relabelled = lattice.with_arcs(labels.astype(np.int32), targets)
        return _top_sorted(relabelled.extended(arcs, finals))


def _without_phones(lattice: LabelledLattice, first_phone: int) -> LabelledLattice:
    """The lattice without phone labels; final weights with transition ids become arcs, as in Kaldi.

    The second pass can then move these weights towards the start, like those of other arcs.
    """
    labels = np.where(lattice.labels < first_phone, lattice.labels, 0).astype(np.int32)
    strings = lattice.final_strings
    moved = np.flatnonzero(lattice.is_final & (strings.lengths > 0))
    size, more = lattice.num_states, len(moved)
    arcs = NewArcs(
        moved,
        np.zeros(more, np.int32),
        lattice.final_graph[moved],
        lattice.final_acoustic[moved],
        np.arange(size, size + more, dtype=np.int32),
        strings.only(moved),
    )
    graph = np.concatenate([lattice.final_graph, np.zeros(more, np.float32)])
    acoustic = np.concatenate([lattice.final_acoustic, np.zeros(more, np.float32)])
    graph[moved], acoustic[moved] = NOT_FINAL, 0.0
    finals = NewFinals(graph, acoustic, Strings.none(size + more))
    return lattice.with_arcs(labels, lattice.targets).extended(arcs, finals)


def _top_sorted(lattice: LabelledLattice) -> LabelledLattice:
    """The lattice with its states in topological order. DataError for a cycle."""
    if lattice.is_top_sorted:
        return lattice
    library = decoding_library()
    order = None if library is None else top_order_by(library, lattice)
    if order is None:
        targets = np.split(lattice.targets, lattice.offsets[1:-1])
        order = np.array(top_order(0, [t.tolist() for t in targets]), np.int32)
    return lattice.in_order(order)


def _pruned(lattice: LabelledLattice, beam: float) -> LabelledLattice:
    """The lattice without arcs and final weights that are on no path within the beam."""
    backward = lattice.backward_costs()
    forward = [math.inf] * len(backward)
    forward[0] = 0.0
    cutoff = backward[0] + beam
    arcs = []
    finals = []
    for state, (of_state, final) in enumerate(
        zip(lattice.arc_lists(), lattice.final_list(), strict=True)
    ):
        kept = []
        for arc in of_state:
            cost = forward[state] + (arc[1] + arc[2])
            forward[arc[4]] = min(forward[arc[4]], cost)
            if cost + backward[arc[4]] <= cutoff:
                kept.append(arc)
        in_beam = final is not None and forward[state] + (final[0] + final[1]) <= cutoff
        arcs.append(kept)
        finals.append(final if in_beam else None)
    return LabelledLattice.from_lists(arcs, finals)
