"""OpenFst's 64 property bits of an FST: pairs of bits, "true" and "false".

Bits that depend on all states and arcs are computed only for compact files of supervisions, where
Kaldi writes all of them.
"""

from __future__ import annotations

from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fst.connect import accessible, coaccessible, component_numbers
from nnet3tools.fst.fst import EPSILON, NO_STATE, Fst


class Property(IntFlag):
    """OpenFst's property bits (fst/properties.h); each odd bit negates the bit before it."""

    EXPANDED = 1
    MUTABLE = 1 << 1
    ACCEPTOR = 1 << 16
    NOT_ACCEPTOR = 1 << 17
    I_DETERMINISTIC = 1 << 18
    NON_I_DETERMINISTIC = 1 << 19
    O_DETERMINISTIC = 1 << 20
    NON_O_DETERMINISTIC = 1 << 21
    EPSILONS = 1 << 22
    NO_EPSILONS = 1 << 23
    I_EPSILONS = 1 << 24
    NO_I_EPSILONS = 1 << 25
    O_EPSILONS = 1 << 26
    NO_O_EPSILONS = 1 << 27
    I_LABEL_SORTED = 1 << 28
    NOT_I_LABEL_SORTED = 1 << 29
    O_LABEL_SORTED = 1 << 30
    NOT_O_LABEL_SORTED = 1 << 31
    WEIGHTED = 1 << 32
    UNWEIGHTED = 1 << 33
    CYCLIC = 1 << 34
    ACYCLIC = 1 << 35
    INITIAL_CYCLIC = 1 << 36
    INITIAL_ACYCLIC = 1 << 37
    TOP_SORTED = 1 << 38
    NOT_TOP_SORTED = 1 << 39
    ACCESSIBLE = 1 << 40
    NOT_ACCESSIBLE = 1 << 41
    COACCESSIBLE = 1 << 42
    NOT_COACCESSIBLE = 1 << 43
    STRING = 1 << 44
    NOT_STRING = 1 << 45
    WEIGHTED_CYCLES = 1 << 46
    UNWEIGHTED_CYCLES = 1 << 47


_ON_PATHS = Property.ACCESSIBLE | Property.COACCESSIBLE

OF_ANY_ORDER = ~(
    Property.TOP_SORTED | Property.NOT_TOP_SORTED | Property.STRING | Property.NOT_STRING
)
"""Properties that do not depend on the numbers of states (OpenFst's kStateSortProperties)."""

_BOTH_HAVE = Property.ACCEPTOR | Property.UNWEIGHTED | Property.UNWEIGHTED_CYCLES | Property.ACYCLIC

_EITHER_HAS = (
    Property.NOT_ACCEPTOR
    | Property.NON_I_DETERMINISTIC
    | Property.NON_O_DETERMINISTIC
    | Property.EPSILONS
    | Property.I_EPSILONS
    | Property.O_EPSILONS
    | Property.NOT_I_LABEL_SORTED
    | Property.NOT_O_LABEL_SORTED
    | Property.WEIGHTED
    | Property.WEIGHTED_CYCLES
    | Property.CYCLIC
    | Property.NOT_ACCESSIBLE
    | Property.NOT_COACCESSIBLE
)

_LINEAR = 0x3 * (
    Property.ACCEPTOR
    | Property.EPSILONS
    | Property.I_EPSILONS
    | Property.O_EPSILONS
    | Property.I_LABEL_SORTED
    | Property.O_LABEL_SORTED
    | Property.WEIGHTED
    | Property.TOP_SORTED
    | Property.STRING
)

_Bools = NDArray[np.bool_]


def pair(yes: Property, true: bool) -> int:
    """The bits `yes` if `true` holds, else the bits of the same pairs that negate them."""
    return int(yes) if true else int(yes) << 1


def all_properties(fst: Fst) -> int:
    """All property bits of an FST, computed from its states and arcs."""
    return _label_bits(fst) | _weight_and_path_bits(fst)


def linear_properties(fst: Fst) -> int:
    """The property bits that OpenFst computes in time linear in the FST's size, all at once."""
    return all_properties(fst) & _LINEAR


def concatenated_properties(first: int, second: int) -> int:
    """The property bits of the concatenation of two FSTs, from their bits (ConcatProperties)."""
    found = first & second & (_BOTH_HAVE | Property.EXPANDED | Property.MUTABLE)
    found |= (first | second) & (Property.NOT_TOP_SORTED | Property.NOT_STRING)
    found |= first & (_EITHER_HAS | Property.INITIAL_ACYCLIC | Property.INITIAL_CYCLIC)
    if first & _ON_PATHS == _ON_PATHS:
        found |= second & (_ON_PATHS | _EITHER_HAS)
    return found


def is_deterministic(fst: Fst) -> bool:
    """Whether no state has two arcs with the same input label."""
    return bool(_label_bits(fst) & Property.I_DETERMINISTIC)


def _label_bits(fst: Fst) -> int:
    same_state = fst.sources[1:] == fst.sources[:-1]
    inputs, outputs = fst.ilabels, fst.olabels
    bits = pair(Property.ACCEPTOR, fst.is_acceptor)
    bits |= pair(Property.EPSILONS, bool(((inputs == EPSILON) & (outputs == EPSILON)).any()))
    for labels, deterministic, epsilons, label_sorted in (
        (inputs, Property.I_DETERMINISTIC, Property.I_EPSILONS, Property.I_LABEL_SORTED),
        (outputs, Property.O_DETERMINISTIC, Property.O_EPSILONS, Property.O_LABEL_SORTED),
    ):
        rising = not (same_state & (labels[1:] < labels[:-1])).any()
        bits |= pair(label_sorted, rising)
        bits |= pair(epsilons, bool((labels == EPSILON).any()))
        if not rising:
            labels = labels[np.lexsort((labels, fst.sources))]
        repeated = (same_state & (labels[1:] == labels[:-1])).any()
        bits |= pair(deterministic, not repeated)
    return bits


def _weight_and_path_bits(fst: Fst) -> int:
    weighted_arc = (fst.weights != 0.0) & np.isfinite(fst.weights)
    weighted = bool(weighted_arc.any() or (fst.is_final & (fst.finals != 0.0)).any())
    top_sorted = bool((fst.nextstates > fst.sources).all())
    acyclic = initial_acyclic = unweighted_cycles = True
    if not top_sorted:
        numbers = component_numbers(fst)
        inside = numbers[fst.sources] == numbers[fst.nextstates]
        acyclic = not inside.any()
        unweighted_cycles = not (inside & weighted_arc).any()
        initial_acyclic = not (inside & (fst.sources == fst.start)).any()
    return (
        pair(Property.WEIGHTED, weighted)
        | pair(Property.CYCLIC, not acyclic)
        | pair(Property.INITIAL_CYCLIC, not initial_acyclic)
        | pair(Property.TOP_SORTED, top_sorted)
        | pair(Property.ACCESSIBLE, bool(accessible(fst).all()))
        | pair(Property.COACCESSIBLE, bool(coaccessible(fst).all()))
        | pair(Property.STRING, _is_string(fst))
        | pair(Property.WEIGHTED_CYCLES, not unweighted_cycles)
    )


def _is_string(fst: Fst) -> bool:
    """Whether the FST is a chain 0, 1, 2, ... of which only the last state may be final."""
    counts = fst.counts
    final: _Bools = fst.is_final
    return bool(
        fst.start in (0, NO_STATE)
        and (fst.nextstates == fst.sources + 1).all()
        and (final | (counts == 1)).all()
        and not final[:-1].any()
    )
