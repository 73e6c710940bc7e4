"""Checks of an FST that was read from a file."""

from __future__ import annotations

import numpy as np

from nnet3tools.fst.fst import NO_STATE, Fst
from nnet3tools.io.stream import Reader


def check_fst(reader: Reader, fst: Fst) -> Fst:
    """Return `fst`, which `reader` read; DataError for an impossible state, label or weight."""
    size = fst.num_states
    if not (0 <= fst.start < size or (fst.start == NO_STATE and not size)):
        raise reader.error(f"the FST starts in state {fst.start}: it has {size} states")
    wrong = np.flatnonzero((fst.nextstates < 0) | (fst.nextstates >= size))
    if len(wrong):
        raise reader.error(
            f"an arc of the FST leads to state {fst.nextstates[wrong[0]]}: it has {size} states"
        )
    if ((fst.ilabels < 0) | (fst.olabels < 0)).any():
        raise reader.error("an arc of the FST has a negative label")
    # The semiring has no NaN and no negative infinity.
    if np.isnan(fst.weights).any() or np.isnan(fst.finals).any():
        raise reader.error("the FST has a weight that is not a number")
    if (fst.weights == -np.inf).any() or (fst.finals == -np.inf).any():
        raise reader.error("the FST has a weight of minus infinity")
    return fst
