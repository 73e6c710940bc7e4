"""Division of alignments (lists of transition ids) into phones (Kaldi's hmm-utils.cc)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.nnet.hmm.transition_model import Transitions


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
