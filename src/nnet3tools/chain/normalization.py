"""Adds the weights of the normalization FST to supervisions."""

from __future__ import annotations

from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError, naming
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.compose import ArcsByLabel, compose
from nnet3tools.fst.connect import breadth_first_sorted
from nnet3tools.fst.determinize import determinize
from nnet3tools.fst.epsilon import remove_epsilons
from nnet3tools.fst.files import load_fst
from nnet3tools.fst.fst import Fst
from nnet3tools.fst.minimize import minimize_acyclic
from nnet3tools.io import log

_MAX_STATES = 200_000
"""Kaldi does not determinize acceptors with so many states, before or after."""

NO_SHARED_PATH = (
    "FST was empty after composing with normalization FST. This should be extremely rare (a few "
    "per corpus, at most)"
)

_ANY_LABEL = (1 << 31) - 1


class Normalizer:
    """Composes supervisions with one normalization FST, whose weights are multiplied by `scale`."""

    def __init__(self, fst: Fst, scale: float = 1.0) -> None:
        """Store `fst`, with weights times `scale`; DataError unless an epsilon-free acceptor."""
        fst.check_labels(_ANY_LABEL, "the normalization FST")
        if not fst.num_states:
            raise DataError("the normalization FST is empty")
        self.fst = fst if scale == 1.0 else fst.scaled(scale)
        """The FST, its weights scaled, that supervisions are composed with."""
        self._normalization = ArcsByLabel(self.fst)

    def composed(self, fst: Fst) -> Fst:
        """The acceptor with the normalization FST's weights; empty if they share no path."""
        return compose(fst, self._normalization)

    def normalized(self, supervision: Supervision) -> Supervision | None:
        """The supervision with the normalization FST's weights.

        If not end-to-end, it becomes deterministic, minimal and ordered by time. None if no path is
        left or, after a warning, if it gets too large.
        """
        if supervision.is_e2e:
            if len(supervision.e2e_fsts) != 1:
                raise DataError("weights can be added to a supervision of one sequence only")
            fst = self.composed(remove_epsilons(supervision.e2e_fsts[0]))
            return replace(supervision, e2e_fsts=(fst,)) if fst.num_states else None
        if (small := _small(remove_epsilons(supervision.fst), "supervision fst")) is None:
            return None
        composed = self.composed(small)
        if not composed.num_states:
            return None
        small = _small(composed, "normalized supervision fst")
        return None if small is None else replace(supervision, fst=breadth_first_sorted(small))


def _small(fst: Fst, what: str) -> Fst | None:
    """The FST determinized and minimized; None, after a warning naming `what`, if too large."""
    if fst.num_states < _MAX_STATES:
        try:
            return minimize_acyclic(determinize(fst, _MAX_STATES - 1))
        except DataError as error:
            log.warning(str(error))
    log.warning(f"Failed to determinize {what}")
    return None


def load_normalizer(rxfilename: str, scale: float = 1.0) -> Normalizer:
    """A Normalizer with the FST in a file, its weights times `scale`; DataError for epsilons."""
    fst = load_fst(rxfilename)
    with naming(rxfilename):
        return Normalizer(fst, scale)
