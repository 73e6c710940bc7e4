"""Alignments (lists of transition ids): division into phones, and conversion to another model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.nnet.hmm.transition_model import TransitionModel, Transitions
from nnet3tools.nnet.hmm.tree import ContextDependency


def phone_ends(
    transitions: Transitions, ids: NDArray[np.int32], ends: NDArray[np.integer] | None = None
) -> NDArray[np.intp]:
    """End frame (exclusive) of each phone of an alignment, which may end within a phone.

    Self-loops may come before or after ("reordered") the transition that leaves their state.
    `ends`, if given, are the end frames (exclusive) of several alignments, one after another in
    `ids`; errors name a frame of `ids`.
    """
    if not len(ids):
        return np.zeros(0, np.intp)
    is_last = np.zeros(len(ids), bool)
    is_last[-1 if ends is None else ends[ends > 0] - 1] = True
    lasts = np.flatnonzero(is_last)
    firsts = np.append(0, lasts[:-1] + 1)
    states, phones = transitions.states[ids], transitions.phones[ids]
    is_loop, is_final = transitions.is_self_loop[ids], transitions.is_final[ids]
    changes = np.append(states[1:] != states[:-1], True) | is_last
    may_end = np.ones(len(ids), bool)
    reordered = _are_reordered(np.flatnonzero(changes & ~is_last), is_loop, firsts, lasts)
    if reordered.any():
        lengths = lasts + 1 - firsts
        reordered = reordered.repeat(lengths)
        # A self-loop belongs to the transition before it.
        left = np.where(is_loop, firsts.repeat(lengths), np.arange(len(ids)))
        is_final = np.where(reordered, is_final[np.maximum.accumulate(left)], is_final)
        followed = np.append(is_loop[1:], False) & ~is_last & reordered
        wrong = np.flatnonzero(is_final & followed & changes)
        if wrong.size:
            raise DataError(f"frame {wrong[0] + 1}: a self-loop of a state that was not entered")
        may_end = ~followed
    other_phone = np.append(phones[1:] != phones[:-1], True)
    return np.flatnonzero((is_final & may_end) | (~is_final & changes & other_phone) | is_last) + 1


def _are_reordered(
    changes: NDArray[np.intp],
    is_loop: NDArray[np.bool_],
    firsts: NDArray[np.intp],
    lasts: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """Whether self-loops of each alignment come after the transition that leaves their state.

    `changes` are the frames after which an alignment changes its state, `is_loop` says of each
    frame whether it is a self-loop, `firsts` and `lasts` are frames of each alignment.
    """
    before, after = is_loop[changes], is_loop[changes + 1]
    if (both := np.flatnonzero(before & after)).size:
        frame = int(changes[both[0]])
        raise DataError(f"frames {frame} and {frame + 1}: self-loops of different states")
    telling = np.append(changes[before | after], len(is_loop))
    first = telling[np.searchsorted(telling, firsts)]
    return np.where(first < lasts, np.append(is_loop, False)[first], ~is_loop[firsts])


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

    def convert(
        self, ids: NDArray[np.int32], ends: NDArray[np.integer] | None = None
    ) -> NDArray[np.int32]:
        """The alignment in ids of the new model; DataError if it lacks a transition.

        `ends`, if given, are the ends of several alignments, one after another in `ids`.
        """
        if not len(ids):
            return ids
        self._old.check_transition_ids(ids)
        transitions = self._old.transitions()
        phone_end = phone_ends(transitions, ids, ends)
        # The context of each phone, (phones, width of the tree), is 0 outside its alignment.
        phones, width = transitions.phones[ids[phone_end - 1]], self._tree.width
        of_alignment = 0 if ends is None else np.searchsorted(ends, phone_end)
        at = np.arange(len(phones)) + (width - 1) * of_alignment
        padded = np.zeros(int(at[-1]) + width, phones.dtype)
        padded[at + self._tree.central] = phones
        windows = np.lib.stride_tricks.sliding_window_view(padded, width)[at]
        # Equal numbers mean equal windows; they are ordered as the windows are. np.unique with an
        # axis makes convert-ali a fifth slower.
        numbers = np.zeros(len(windows), np.int64)
        for column in windows.T:
            numbers = np.unique(numbers * (int(windows.max()) + 1) + column, return_inverse=True)[1]
        # The ids from one change of phone or state to the next all change by one number.
        states = transitions.states[ids]
        is_begin = np.append(True, states[1:] != states[:-1])
        is_begin[phone_end[:-1]] = True
        begins = np.flatnonzero(is_begin)
        phone = np.searchsorted(phone_end, begins, side="right")
        pairs = numbers[phone] * len(self._old.tuples) + states[begins]
        _, first, places = np.unique(pairs, return_index=True, return_inverse=True)
        keys = windows[phone[first]].tolist(), states[begins[first]].tolist()
        shifts = [self._shift(tuple(window), state) for window, state in zip(*keys, strict=True)]
        shifts_of_ids = np.array(shifts, np.int32)[places].repeat(np.diff(begins, append=len(ids)))
        return ids + shifts_of_ids

    def _shift(self, window: tuple[int, ...], state: int) -> int:
        """New minus old id, for the ids of old transition state `state` with context `window`."""
        key = window, state
        if key not in self._shifts:
            phone, hmm_state, *_ = self._old.tuples[state].tolist()
            new = self._new.topology.states(phone)
            if new != self._old.topology.states(phone):
                raise DataError(f"phone {phone} has another topology in the new model")
            classes = new[hmm_state].forward_pdf_class, new[hmm_state].self_loop_pdf_class
            pdfs = [self._tree.pdf_of(window, c) if c >= 0 else -1 for c in classes]
            if (first := self._first_new.get((phone, hmm_state, *pdfs))) is None:
                raise DataError(f"the new model has no transition state for phones {window}")
            self._shifts[key] = first - int(self._first_old[state])
        return self._shifts[key]


def _first_ids(model: TransitionModel) -> NDArray[np.int64]:
    """The first transition id of each transition state."""
    counts = model.transitions_per_state().astype(np.int64)
    return 1 + np.cumsum(counts) - counts
