"""Determinization of a decoder's lattice, first on phones and words, then on words.

As Kaldi's DeterminizeLatticePhonePrunedWrapper. The first pass makes the second one cheap.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.determinization import determinized
from nnet3tools.decoding.minimization import minimized
from nnet3tools.decoding.native.lattices import top_order_by
from nnet3tools.decoding.native.library import decoding_library
from nnet3tools.decoding.options import DeterminizeOptions
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.depth_first import top_order
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.lattice import CompactLattice, Lattice, Strings
from nnet3tools.fst.lattice_conversion import compacted, expanded
from nnet3tools.io import log
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.number_text import INT32_MAX

_RETRY_CUTOFF, _MOST_TRIES = 0.5, 10


class PhoneDeterminizer:
    """Determinizes lattices of one acoustic model on phones, then on words, with pruning."""

    def __init__(self, model: TransitionModel, beam: float, options: DeterminizeOptions) -> None:
        """Prepare to determinize lattices; `beam` limits costs relative to the best path."""
        self._options, self._beam = options, beam
        transitions = model.transitions()
        entered = (model.tuples[transitions.states, 1] == 0) & ~transitions.is_self_loop
        entered[0] = False
        self._phones = np.where(entered, transitions.phones, 0)

    def determinize(self, raw: Lattice) -> tuple[CompactLattice, bool]:
        """(lattice with one path per word sequence, whether it is complete within the beam).

        `raw` is a decoder's lattice, top-sorted.
        """
        options = self._options
        if not (options.phone_determinize or options.word_determinize):
            log.warning(
                "Both --phone-determinize and --word-determinize are set to false, copying "
                "lattice without determinization."
            )
        lattice, complete = _top_sorted(_labelled(raw)), True
        if options.phone_determinize:
            lattice, complete = self._run_on_phones(lattice)
        if options.word_determinize:
            lattice, reached = self._run(lattice)
            complete &= reached
        else:
            lattice = compacted(expanded(lattice.connected()))
        if options.minimize and (options.phone_determinize or options.word_determinize):
            lattice = minimized(lattice)
        return lattice.connected(), complete

    def _run_on_phones(self, lattice: CompactLattice) -> tuple[CompactLattice, bool]:
        """(lattice determinized on phones and words, whether it is complete within the beam)."""
        fst, words = lattice.fst, None
        first_phone = 1 + int(fst.ilabels.max(initial=0))
        if first_phone > INT32_MAX - int(self._phones.max(initial=0)):  # words get small numbers
            words = np.unique(np.append(fst.ilabels, 0))
            numbers = np.searchsorted(words, fst.ilabels).astype(np.int32)
            fst, first_phone = fst.relabelled(numbers), len(words)
        made, complete = self._run(self._with_phones(replace(lattice, fst=fst), first_phone))
        made = _without_phones(made, first_phone)
        if words is not None:
            made = replace(made, fst=made.fst.relabelled(words[made.fst.ilabels]))
        return _top_sorted(made), complete

    def _run(self, lattice: CompactLattice) -> tuple[CompactLattice, bool]:
        """(determinized lattice, whether it is complete within the beam).

        If the memory does not suffice, a smaller beam is tried.
        """
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

    def _with_phones(self, lattice: CompactLattice, first_phone: int) -> CompactLattice:
        """The lattice with phone labels where phones begin, except on the start state's arcs.

        Phone p is label `first_phone` + p. As in Kaldi, an arc that has a word keeps it; the phone
        label is on an additional arc after it.
        """
        fst, strings = lattice.fst, lattice.strings
        begins, ends = strings.ends[: fst.num_arcs], strings.ends[1 : fst.num_arcs + 1]
        phones = np.zeros(fst.num_arcs, np.int32)
        has_ids = (ends > begins) & (fst.sources > 0)
        phones[has_ids] = self._phones[strings.ids[begins[has_ids]]]
        has_phone, has_word = phones > 0, fst.ilabels > 0
        labels = np.where(has_phone & ~has_word, first_phone + phones, fst.ilabels)
        both = np.flatnonzero(has_phone & has_word)
        new_states = np.arange(fst.num_states, fst.num_states + len(both))
        targets = fst.nextstates.copy()
        targets[both] = new_states
        costs = np.zeros(len(both), np.float32)
        none = Strings.none(len(both))
        arcs = _Arcs(
            new_states, first_phone + phones[both], costs, costs, fst.nextstates[both], none
        )
        finals = _Finals(
            np.concatenate([fst.finals, np.full(len(both), NOT_FINAL, np.float32)]),
            np.concatenate([lattice.final_acoustic, costs]),
            strings.only(np.arange(fst.num_arcs, len(strings.ends) - 1)).joined(none),
        )
        return _top_sorted(_extended(lattice, labels, targets, arcs, finals))


class _Arcs(NamedTuple):
    """Arcs to add to a lattice, as arrays; `graph` and `acoustic` are costs, `strings` ids."""

    sources: NDArray[np.integer]
    labels: NDArray[np.integer]
    graph: NDArray[np.float32]
    acoustic: NDArray[np.float32]
    targets: NDArray[np.integer]
    strings: Strings


class _Finals(NamedTuple):
    """New final weights for all states of a lattice: graph and acoustic costs, transition ids."""

    graph: NDArray[np.float32]
    acoustic: NDArray[np.float32]
    strings: Strings


def _extended(
    lattice: CompactLattice,
    labels: NDArray[np.integer],
    targets: NDArray[np.integer],
    arcs: _Arcs,
    finals: _Finals,
) -> CompactLattice:
    """A copy: the arcs of `lattice` with new `labels` and `targets`, then `arcs`; new `finals`."""
    fst = lattice.fst
    sources = np.concatenate([fst.sources, arcs.sources])
    order = np.argsort(sources, kind="stable")
    strings = lattice.strings.only(np.arange(fst.num_arcs)).joined(arcs.strings).only(order)
    extended = Fst.from_arcs(
        0,
        finals.graph,
        sources,
        np.concatenate([labels, arcs.labels]),
        np.concatenate([fst.weights, arcs.graph]),
        np.concatenate([targets, arcs.targets]),
    )
    acoustic = np.concatenate([lattice.acoustic, arcs.acoustic])[order]
    return CompactLattice(extended, acoustic, finals.acoustic, strings.joined(finals.strings))


def _labelled(raw: Lattice) -> CompactLattice:
    """Convert a decoder's top-sorted lattice to a CompactLattice with words as labels."""
    fst = raw.fst
    reads = fst.ilabels != 0
    ends = np.zeros(fst.num_arcs + fst.num_states + 1, np.int64)
    np.cumsum(reads, out=ends[1 : fst.num_arcs + 1])
    ends[fst.num_arcs + 1 :] = ends[fst.num_arcs]
    strings = Strings(ends, fst.ilabels[reads])
    return CompactLattice(fst.relabelled(fst.olabels), raw.acoustic, raw.final_acoustic, strings)


def _without_phones(lattice: CompactLattice, first_phone: int) -> CompactLattice:
    """The lattice without phone labels, which are `first_phone` and higher labels.

    Final weights with transition ids become arcs, as in Kaldi. The second pass can then move these
    weights towards the start, like those of other arcs.
    """
    fst, strings = lattice.fst, lattice.strings
    labels = np.where(fst.ilabels < first_phone, fst.ilabels, 0)
    moved = np.flatnonzero(fst.is_final & (strings.lengths[fst.num_arcs :] > 0))
    size, more = fst.num_states, len(moved)
    arcs = _Arcs(
        moved,
        np.zeros(more, np.int32),
        fst.finals[moved],
        lattice.final_acoustic[moved],
        np.arange(size, size + more),
        strings.only(moved + fst.num_arcs),
    )
    graph = np.concatenate([fst.finals, np.zeros(more, np.float32)])
    acoustic = np.concatenate([lattice.final_acoustic, np.zeros(more, np.float32)])
    graph[moved], acoustic[moved] = NOT_FINAL, 0.0
    finals = _Finals(graph, acoustic, Strings.none(size + more))
    return _extended(lattice, labels, fst.nextstates, arcs, finals)


def _top_sorted(lattice: CompactLattice) -> CompactLattice:
    """The lattice with its states in topological order. DataError for a cycle."""
    if lattice.is_top_sorted:
        return lattice
    library = decoding_library()
    order = None if library is None else top_order_by(library, lattice)
    return lattice.in_order(np.array(top_order(lattice.fst)) if order is None else order)


def _pruned(lattice: CompactLattice, beam: float) -> CompactLattice:
    """The lattice without arcs and final weights that are on no path within the beam."""
    backward = lattice.costs_to_end(range(lattice.fst.num_states))
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
    return CompactLattice.from_lists(0, finals, arcs)
