"""A decoder's lattice made deterministic: first on phones and words, then on words.

That is Kaldi's DeterminizeLatticePhonePrunedWrapper; the first pass makes the second one cheap.
"""

from __future__ import annotations

import math

import numpy as np

from nnet3tools.decoding.determinization import Determinizer, LabelledLattice
from nnet3tools.decoding.options import DeterminizeOptions
from nnet3tools.fst.connect import accessible, coaccessible
from nnet3tools.fst.depth_first import top_order
from nnet3tools.fst.lattice import CompactArc, CompactLattice, Lattice
from nnet3tools.fst.lattice_conversion import compacted, expanded
from nnet3tools.io import log
from nnet3tools.nnet.hmm.transition_model import TransitionModel

__all__ = ["PhoneDeterminizer"]

_RETRY_CUTOFF, _MOST_TRIES = 0.5, 10


class PhoneDeterminizer:
    """Determinizes the lattices of one model."""

    def __init__(self, model: TransitionModel, beam: float, options: DeterminizeOptions) -> None:
        """`beam` is that of the lattices."""
        self._options, self._beam = options, beam
        transitions = model.transitions()
        entered = (model.tuples[transitions.states, 1] == 0) & ~transitions.is_self_loop
        entered[0] = False
        self._phones = np.where(entered, transitions.phones, 0)

    def determinize(self, raw: Lattice) -> tuple[CompactLattice, bool]:
        """The lattice with one path for a word sequence; whether the beam was reached."""
        options = self._options
        if not (options.phone_determinize or options.word_determinize):
            log.warning(
                "Both --phone-determinize and --word-determinize are set to false, copying "
                "lattice without determinization."
            )
        lattice, complete = _labelled(raw), True
        if options.phone_determinize:
            first_phone = 1 + int(raw.fst.olabels.max(initial=0))
            lattice, complete = self._run(self._with_phones(lattice, first_phone))
            lattice = _top_sorted(_without_phones(lattice, first_phone))
        if options.word_determinize:
            lattice, reached = self._run(lattice)
            complete &= reached
            return _connected(lattice), complete
        return compacted(expanded(_connected(lattice))), complete

    def _run(self, lattice: LabelledLattice) -> tuple[LabelledLattice, bool]:
        """Determinize, with a smaller beam if memory runs out long before the end."""
        beam = self._beam
        for attempt in range(_MOST_TRIES):
            determinizer = Determinizer(lattice, beam, self._options.delta, self._options.max_mem)
            reached = determinizer.run()
            if reached >= beam * _RETRY_CUTOFF or attempt + 1 == _MOST_TRIES:
                break
            beam = max(beam * math.sqrt(max(reached, 0.0) / beam), 0.5 * beam)
            log.log(
                f"Pruned state-level lattice with beam {beam:g} and retrying determinization with "
                "that beam."
            )
            lattice = _pruned(lattice, beam)
        return determinizer.result(), reached >= beam

    def _with_phones(self, lattice: LabelledLattice, first_phone: int) -> LabelledLattice:
        """With phones as labels where they begin; the start state's arcs have none, as in Kaldi."""
        phones = self._phones.tolist()
        arcs: list[list[CompactArc]] = [lattice.arcs[0]]
        added: list[list[CompactArc]] = []
        size = len(lattice.arcs)
        for of_state in lattice.arcs[1:]:
            new = []
            for word, graph, acoustic, ids, target in of_state:
                label = word
                if ids and phones[ids[0]]:
                    label = first_phone + phones[ids[0]]
                    if word:  # the phone comes after it, on an arc of its own
                        added.append([(label, 0.0, 0.0, (), target)])
                        label, target = word, size + len(added) - 1
                new.append((label, graph, acoustic, ids, target))
            arcs.append(new)
        finals = [*lattice.finals, *[None] * len(added)]
        return _top_sorted(LabelledLattice(arcs + added, finals))


def _labelled(raw: Lattice) -> LabelledLattice:
    arcs: list[list[CompactArc]] = [
        [(word, graph, acoustic, (i,) if i else (), n) for i, word, graph, acoustic, n in of_state]
        for of_state in raw.arc_lists()
    ]
    return LabelledLattice(arcs, [f and (*f, ()) for f in raw.final_list()])


def _without_phones(lattice: LabelledLattice, first_phone: int) -> LabelledLattice:
    """Phones are no labels any more; final weights with transition ids become arcs, as in Kaldi.

    So the second pass moves these weights towards the start, as those of other arcs.
    """
    arcs = [
        [(arc[0] if arc[0] < first_phone else 0, *arc[1:]) for arc in of_state]
        for of_state in lattice.arcs
    ]
    finals = list(lattice.finals)
    for state, final in enumerate(lattice.finals):
        if final is not None and final[2]:
            arcs[state].append((0, *final, len(arcs)))
            arcs.append([])
            finals[state] = None
            finals.append((0.0, 0.0, ()))
    return LabelledLattice(arcs, finals)


def _top_sorted(lattice: LabelledLattice) -> LabelledLattice:
    if all(arc[4] > state for state, arcs in enumerate(lattice.arcs) for arc in arcs):
        return lattice
    order = top_order(0, [[arc[4] for arc in arcs] for arcs in lattice.arcs])
    numbers = [0] * len(order)
    for number, state in enumerate(order):
        numbers[state] = number
    arcs = [[(*arc[:4], numbers[arc[4]]) for arc in lattice.arcs[state]] for state in order]
    return LabelledLattice(arcs, [lattice.finals[state] for state in order])


def _pruned(lattice: LabelledLattice, beam: float) -> LabelledLattice:
    """Without the arcs and final weights that are on no path within the beam."""
    backward = lattice.backward_costs()
    forward = [math.inf] * len(backward)
    forward[0] = 0.0
    cutoff = backward[0] + beam
    arcs = []
    finals = []
    for state, of_state in enumerate(lattice.arcs):
        kept = []
        for arc in of_state:
            cost = forward[state] + arc[1] + arc[2]
            forward[arc[4]] = min(forward[arc[4]], cost)
            if cost + backward[arc[4]] <= cutoff:
                kept.append(arc)
        final = lattice.finals[state]
        in_beam = final is not None and forward[state] + final[0] + final[1] <= cutoff
        arcs.append(kept)
        finals.append(final if in_beam else None)
    return LabelledLattice(arcs, finals)


def _connected(lattice: LabelledLattice) -> CompactLattice:
    """As arrays, without states that are on no path to a final one."""
    compact = CompactLattice.from_lists(0, lattice.finals, lattice.arcs)
    if not compact.fst.num_states:
        return compact
    keep = accessible(compact.fst) & coaccessible(compact.fst)
    if keep.all():
        return compact
    if not keep[0]:
        return CompactLattice.empty()
    numbers = (np.cumsum(keep) - 1).tolist()
    kept = np.flatnonzero(keep).tolist()
    arcs = [
        [(*arc[:4], numbers[arc[4]]) for arc in lattice.arcs[state] if keep[arc[4]]]
        for state in kept
    ]
    return CompactLattice.from_lists(0, [lattice.finals[state] for state in kept], arcs)
