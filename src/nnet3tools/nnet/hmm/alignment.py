"""Alignments (lists of transition ids): division into phones, and conversion to another model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.nnet.hmm.transition_model import TransitionModel, Transitions
from nnet3tools.nnet.hmm.tree import ContextDependency


def phone_ends(transitions: Transitions, ids: NDArray[np.int32]) -> NDArray[np.intp]:
    """End frame (exclusive) of each phone of an alignment, which may end within a phone.

    Self-loops may come before or after ("reordered") the transition that leaves their state.
    """
    if not len(ids):
        return np.zeros(0, np.intp)
    states, phones = transitions.states[ids], transitions.phones[ids]
    is_loop, is_final = transitions.is_self_loop[ids], transitions.is_final[ids].copy()
    changes = np.append(states[1:] != states[:-1], True)
    may_end = np.ones(len(ids), bool)
    if _is_reordered(states, is_loop):
        # A self-loop belongs to the transition before it.
        left = np.where(is_loop, 0, np.arange(len(ids)))
        left = np.maximum.accumulate(left)
        is_final = is_final[left]
        followed = np.append(is_loop[1:], False)
        wrong = np.flatnonzero(is_final & followed & changes)
        if wrong.size:
            raise DataError(f"frame {wrong[0] + 1}: a self-loop of a state that was not entered")
        may_end = ~followed
    other_phone = np.append(phones[1:] != phones[:-1], True)
    ends = (is_final & may_end) | (~is_final & changes & other_phone)
    ends[-1] = True
    return np.flatnonzero(ends) + 1


def _is_reordered(states: NDArray[np.int32], is_loop: NDArray[np.bool_]) -> bool:
    """Whether self-loops of an alignment come after the transition that leaves their state.

    `states` and `is_loop` have an element for each frame.
    """
    changes = np.flatnonzero(states[1:] != states[:-1])
    before, after = is_loop[changes], is_loop[changes + 1]
    if (both := np.flatnonzero(before & after)).size:
        frame = int(changes[both[0]])
        raise DataError(f"frames {frame} and {frame + 1}: self-loops of different states")
    telling = np.flatnonzero(before | after)
    if telling.size:
        return bool(before[telling[0]])
    return not is_loop[0]


class AlignmentConverter:
    """Converts transition ids of `old` to those of `new`, whose tree is `tree`.

    Phones and their HMM states stay the same; only the pdfs of the states change.
    """

    def __init__(self, old: TransitionModel, new: TransitionModel, tree: ContextDependency) -> None:
        self._old, self._new, self._tree = old, new, tree
        self._first_old, first_new = _first_ids(old), _first_ids(new)
        rows = map(tuple, new.tuples.tolist())
        self._first_new = dict(zip(rows, first_new.tolist(), strict=True))
        self._shifts: dict[tuple[tuple[int, ...], int], int] = {}

    def convert(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """The alignment in ids of the new model; DataError if it lacks a transition."""
        if not len(ids):
            return ids
        self._old.check_transition_ids(ids)
        transitions = self._old.transitions()
        ends = phone_ends(transitions, ids)
        lengths = np.diff(ends, prepend=0)
        phones = transitions.phones[ids[ends - 1]]
        width, central = self._tree.width, self._tree.central
        padded = np.pad(phones, (central, width - 1 - central))
        windows = np.lib.stride_tricks.sliding_window_view(padded, width)
        distinct, numbers = np.unique(windows, axis=0, return_inverse=True)
        states = transitions.states[ids]
        pairs = numbers.reshape(-1).repeat(lengths) * np.int64(len(self._old.tuples)) + states
        found, places = np.unique(pairs, return_inverse=True)
        keys = zip(*np.divmod(found, len(self._old.tuples)), strict=True)
        shifts = [self._shift(tuple(distinct[n].tolist()), int(state)) for n, state in keys]
        return (ids + np.array(shifts, np.int32)[places.reshape(-1)]).astype(np.int32)

    def _shift(self, window: tuple[int, ...], state: int) -> int:
        """New minus old transition ids of the old transition state `state` in a phone window."""
        key = window, state
        if key not in self._shifts:
            phone, hmm_state, *_ = self._old.tuples[state].tolist()
            new = self._new.topology.states(phone)
            if new != self._old.topology.states(phone):
                raise DataError(f"phone {phone} has another topology in the new model")
            classes = new[hmm_state].forward_pdf_class, new[hmm_state].self_loop_pdf_class
            pdfs = [self._tree.pdf_of(window, c) if c >= 0 else -1 for c in classes]
            first = self._first_new.get((phone, hmm_state, *pdfs))
            if first is None:
                raise DataError(f"the new model has no transition state for phones {window}")
            self._shifts[key] = first - int(self._first_old[state])
        return self._shifts[key]


def _first_ids(model: TransitionModel) -> NDArray[np.int64]:
    """The first transition id of each transition state."""
    counts = model.transitions_per_state().astype(np.int64)
    return 1 + np.cumsum(counts) - counts
