"""Cuts the supervision of an utterance into chunks (discriminative-supervision.cc)."""

from __future__ import annotations

import numpy as np

from nnet3tools.discriminative.lattice_levels import LevelledLattice
from nnet3tools.discriminative.supervision import DiscriminativeSupervision
from nnet3tools.errors import DataError, OptionError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.lattice import CompactLattice, Lattice
from nnet3tools.fst.lattice_determinize import (
    as_acceptor,
    determinized_lattice,
    from_acceptor,
    reversed_lattice,
)
from nnet3tools.fst.lattice_epsilon import lattice_without_epsilons
from nnet3tools.fst.lattice_order import in_top_order, lattice_state_times
from nnet3tools.fst.properties import Property, linear_properties
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.options import OptionGroup, option

_NO_EPSILONS = Property.NO_EPSILONS | Property.NO_I_EPSILONS | Property.NO_O_EPSILONS
_ON_PATHS = Property.ACCESSIBLE | Property.COACCESSIBLE


class SplitOptions(OptionGroup):
    """Options of cutting supervisions (Kaldi's SplitDiscriminativeSupervisionOptions)."""

    collapse_transition_ids: bool = option(
        True,
        "If true, modify the transition-ids on denominator lattice so that on each frame, there is "
        "just one with any given pdf-id. This allows us to determinize and minimize more "
        "completely.",
    )
    remove_output_symbols: bool = option(
        True, "Accepted for compatibility; has no effect, as in Kaldi: words are always removed"
    )
    remove_epsilons: bool = option(
        True, "Accepted for compatibility; has no effect, as in Kaldi: epsilons are always removed"
    )
    determinize: bool = option(
        True, "If true, we determinize lattices (as Lattice) after splitting and possibly minimize"
    )
    minimize: bool = option(
        True, "If true, we push and minimize lattices (as Lattice) after splitting"
    )
    acoustic_scale: float = option(
        0.1,
        "Scaling factor for acoustic likelihoods (should match the value used in "
        "discriminative-get-supervision)",
    )

    def check(self) -> None:
        """Raise OptionError if an option's value is out of its range."""
        if self.acoustic_scale == 0.0:
            raise OptionError("invalid --acoustic-scale=0: expected another number")


class SupervisionSplitter:
    """Cuts ranges of frames out of the supervision of one utterance.

    The lattice of a range has the paths of the whole lattice in the range. Their costs include the
    forward and backward probabilities at the ends of the range.
    """

    def __init__(
        self, options: SplitOptions, model: TransitionModel, supervision: DiscriminativeSupervision
    ) -> None:
        """Prepare to cut; DataError for several sequences, or transition ids unknown to `model`."""
        if supervision.num_sequences != 1:
            raise DataError("a supervision of several sequences cannot be split")
        labels = supervision.den_lat.fst.ilabels
        model.check_transition_ids(labels[labels != 0])
        self._options, self._supervision = options, supervision
        self._pdfs = model.pdfs_of_ids()
        scale = np.float32(options.acoustic_scale)
        self._unscale = float(np.float32(1.0) / scale)
        lattice = supervision.den_lat.scaled(acoustic_scale=float(scale))
        order = np.argsort(lattice_state_times(lattice), kind="stable")
        self._lattice = lattice.in_order(order)
        self._times = lattice_state_times(self._lattice)
        levels = LevelledLattice(self._lattice)
        found = levels.probabilities(*levels.costs(self._lattice))
        self._alpha, self._beta = found.alpha, found.beta

    def piece(self, begin: int, num_frames: int, normalize: bool) -> DiscriminativeSupervision:
        """The supervision of the `num_frames` frames that start at frame `begin`.

        With `normalize` the probability of the whole lattice is divided out of its costs. DataError
        if the utterance has no such frames.
        """
        whole = self._supervision
        if begin < 0 or num_frames <= 0 or begin + num_frames > whole.frames_per_sequence:
            raise DataError(
                f"frames {begin} to {begin + num_frames - 1} are not among the "
                f"{whole.frames_per_sequence} of the supervision"
            )
        acceptor = lattice_without_epsilons(self._range(begin, begin + num_frames, normalize))
        if self._options.collapse_transition_ids:
            acceptor = self._collapsed(acceptor)
        if self._options.determinize:
            acceptor = self._determinized(acceptor)
        lattice = in_top_order(from_acceptor(acceptor))
        lattice = lattice.scaled(acoustic_scale=self._unscale)
        lattice = replace(lattice, fst=lattice.fst.with_properties(self._file_properties(lattice)))
        alignment = whole.num_ali[begin : begin + num_frames]
        found = DiscriminativeSupervision(whole.weight, 1, num_frames, alignment, lattice)
        found.check()
        return found

    def _range(self, begin: int, end: int, normalize: bool) -> CompactLattice:
        """The lattice of frames `begin` to `end` - 1, with a new start and a new final state.

        `normalize` adds the log of the unsplit lattice's probability to the new start's arcs.
        """
        fst, times = self._lattice.fst, self._times
        first, last = np.searchsorted(times, [begin, end])
        final = last - first + 1
        entered = np.arange(first, np.searchsorted(times, begin, side="right"))
        total = self._beta[0] if normalize else 0.0
        arcs = slice(int(fst.offsets[first]), int(fst.offsets[last]))
        targets, costs = fst.nextstates[arcs], fst.weights[arcs].astype(np.float64)
        leaves = targets >= last
        costs[leaves] -= self._beta[targets[leaves]]
        nothing = np.zeros(len(entered), np.int32)
        finals = np.full(final + 1, NOT_FINAL, np.float32)
        finals[final] = 0.0
        cut = Fst.from_arcs(
            0,
            finals,
            np.concatenate([nothing, fst.sources[arcs] - first + 1]),
            np.concatenate([nothing, fst.ilabels[arcs]]),
            np.concatenate([total - self._alpha[entered], costs]),
            np.concatenate([entered - first + 1, np.where(leaves, final, targets - first + 1)]),
        )
        acoustic = np.concatenate([nothing.astype(np.float32), self._lattice.acoustic[arcs]])
        return as_acceptor(Lattice(cut, acoustic, np.zeros(final + 1, np.float32)))

    def _collapsed(self, acceptor: CompactLattice) -> CompactLattice:
        """The acceptor with all transition ids of one pdf in one frame replaced by the first.

        As in Kaldi, state i is taken to have the frame of state i of the whole lattice. So ids of
        one pdf may stay different, or be replaced across frames.
        """
        fst = acceptor.fst
        places = self._times[fst.sources].astype(np.int64) * len(self._pdfs)
        places += self._pdfs[fst.ilabels]
        _, firsts, inverse = np.unique(places, return_index=True, return_inverse=True)
        return replace(acceptor, fst=fst.relabelled(fst.ilabels[firsts[inverse]]))

    def _determinized(self, acceptor: CompactLattice) -> CompactLattice:
        if not self._options.minimize:
            return determinized_lattice(acceptor)
        backwards = determinized_lattice(reversed_lattice(acceptor))
        return lattice_without_epsilons(determinized_lattice(reversed_lattice(backwards)))

    def _file_properties(self, lattice: Lattice) -> int:
        """The OpenFst property bits that Kaldi writes into the file of a lattice from `_range`."""
        if self._unscale != 1.0:
            return linear_properties(lattice.fst)
        said = Property.ACCEPTOR | _NO_EPSILONS | Property(lattice.fst.properties)
        if self._options.determinize and not self._options.minimize:
            return said | Property.I_DETERMINISTIC | Property.ACCESSIBLE
        if not self._options.determinize and self._options.collapse_transition_ids:
            return said | Property.WEIGHTED
        return said | _ON_PATHS
