"""The objectives of discriminative training, and their derivatives (discriminative-training.cc).

mmi: the log-probability of the alignment minus the log-probability of the lattice. mpfe and smbr:
the expected number of frames whose phone (mpfe) or pdf (smbr) is that of the alignment.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from nnet3tools.discriminative.lattice_levels import LevelledLattice
from nnet3tools.discriminative.options import DiscriminativeOptions
from nnet3tools.discriminative.supervision import DiscriminativeSupervision
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.fst.lattice import Lattice
from nnet3tools.io import log
from nnet3tools.nnet.hmm.transition_model import TransitionModel

_FLOOR = np.float32(-20 * math.log(10.0))
"""The lower limit that outputs are clipped to."""

_NOT_FINITE = -10.0
"""The objective per frame of a minibatch whose objective is not finite."""


@dataclass(frozen=True)
class Elements:
    """The elements of a sparse matrix: values, rows and columns. No position occurs twice."""

    rows: NDArray[np.int32]
    cols: NDArray[np.int32]
    values: NDArray[np.float32]


@dataclass(frozen=True)
class Judged:
    """The objective of one minibatch, its parts and its derivative by the output.

    `objective` is weighted; with mmi it is `numerator` - `denominator`, which are 0 otherwise.
    `positive` and `negative` are the sums of the unweighted derivative's positive and negative
    elements, without sign. `reference` has each row's weight at the pdf of the alignment.
    """

    weight: float
    objective: float
    numerator: float
    denominator: float
    positive: float
    negative: float
    deriv: Elements
    reference: Elements


class DiscriminativeObjective:
    """One criterion (mmi, mpfe or smbr), for the pdfs of one transition model.

    The output's probabilities are divided by `priors` (pdfs,), unless that is empty.
    """

    def __init__(
        self, options: DiscriminativeOptions, model: TransitionModel, priors: NDArray[np.float32]
    ) -> None:
        options.check()
        self._options, self._model = options, model
        self._silence = np.array(options.silence(), np.int32)
        with np.errstate(divide="ignore"):
            self._log_priors = np.log(priors)

    def judge(self, supervision: DiscriminativeSupervision, output: NDArray[np.float32]) -> Judged:
        """The objective of a network's `output` (num_frames, pdfs), which is log-probabilities.

        Rows run frame by frame, in each frame sequence by sequence. If the objective is NaN, the
        result is -10 per frame with a derivative of zeros. DataError if the supervision does not
        fit the model or the output.
        """
        self._check(supervision, output)
        pdfs = self._model.pdfs_of_ids()
        levels = LevelledLattice(supervision.den_lat, supervision.num_sequences)
        rows = _rows(supervision, levels.frames)
        is_frame = levels.labels != 0
        cols = pdfs[levels.labels]
        lattice = self._boosted(supervision, levels)
        likes = np.zeros(len(rows), np.float32)
        likes[is_frame] = self._log_likes(output, rows[is_frame], cols[is_frame])
        costs, final_costs = levels.costs(_rescored(lattice, levels, likes))
        found = levels.probabilities(costs, final_costs)
        reference = _alignment(supervision, pdfs)
        if self._options.criterion == "mmi":
            numerator = float(
                self._log_likes(output, reference.rows, reference.cols).sum(dtype=np.float64)
            )
            denominator = float(np.float32(found.totals.sum()))
            total = numerator - denominator
            values = -levels.posteriors(costs, found)
        else:
            numerator = denominator = 0.0
            right = self._is_right(supervision, levels)
            total, values = levels.expected(right, costs, final_costs, found)
        deriv = self._summed(rows[is_frame], cols[is_frame], values[is_frame], reference, output)
        positive = float(deriv.values[deriv.values > 0].sum(dtype=np.float64))
        negative = -float(deriv.values[deriv.values < 0].sum(dtype=np.float64))
        scale = supervision.weight
        weight, objective = supervision.num_frames * scale, scale * total
        deriv = replace(deriv, values=deriv.values * np.float32(scale))
        if math.isnan(objective):
            log.warning(
                f"Objective function is {objective:g}, setting to {_NOT_FINITE:g} per frame."
            )
            objective = _NOT_FINITE * weight
            deriv = replace(deriv, values=np.zeros_like(deriv.values))
        parts = scale * numerator, scale * denominator
        return Judged(weight, objective, *parts, positive, negative, deriv, reference)

    # -- from the output to the lattice

    def _check(self, supervision: DiscriminativeSupervision, output: NDArray[np.float32]) -> None:
        labels = supervision.den_lat.fst.ilabels
        self._model.check_transition_ids(supervision.num_ali)
        self._model.check_transition_ids(labels[labels != 0])
        expected = supervision.num_frames, self._model.num_pdfs
        if len(output) != expected[0] or output.shape[1] < expected[1]:
            raise DataError(
                f"the output is {output.shape[0]} x {output.shape[1]}, expected one row for each "
                f"of {expected[0]} frames and a column for each of {expected[1]} pdfs"
            )
        if len(self._log_priors) not in (0, output.shape[1]):
            raise DataError(
                f"the model has {len(self._log_priors)} priors, the output {output.shape[1]} "
                "columns"
            )

    def _log_likes(
        self, output: NDArray[np.float32], rows: NDArray[np.int32], cols: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """`output` at (rows, cols), >= log 1e-20, minus log-prior, times --acoustic-scale."""
        found = output[rows, cols]
        if num_floored := int((found < _FLOOR).sum()):
            found = np.where(found < _FLOOR, _FLOOR, found)
            log.warning(f"Floored {num_floored} probabilities from nnet.")
        if len(self._log_priors):
            if (found > 0.0).any():
                raise DataError(
                    "the output is greater than 0, which no logarithm of a probability is: the "
                    "model has priors"
                )
            found = found - self._log_priors[cols]
        return found * np.float32(self._options.acoustic_scale)

    def _boosted(self, supervision: DiscriminativeSupervision, levels: LevelledLattice) -> Lattice:
        """The lattice; for mmi, arcs whose phone is wrong and not silence cost --boost less."""
        lattice, boost = supervision.den_lat, np.float32(self._options.boost)
        if self._options.criterion != "mmi" or boost == 0.0:
            return lattice
        phones = self._model.transitions().phones
        phone, reference = phones[levels.labels], phones[supervision.num_ali][levels.frames]
        wrong = (levels.labels != 0) & (phone != reference) & ~np.isin(phone, self._silence)
        weights = lattice.fst.weights.copy()
        weights[levels.arcs] -= boost * wrong
        return replace(lattice, fst=replace(lattice.fst, weights=weights))

    def _is_right(
        self, supervision: DiscriminativeSupervision, levels: LevelledLattice
    ) -> NDArray[np.float64]:
        """For each of `levels.arcs`: 1 if its phone (mpfe) or pdf (smbr) is the alignment's, or 0.

        With --one-silence-class any two silence phones are equal, otherwise arcs of silence get 0.
        """
        model = self._model.transitions()
        kind = model.phones if self._options.criterion == "mpfe" else model.pdfs
        reference = supervision.num_ali[np.minimum(levels.frames, len(supervision.num_ali) - 1)]
        same = kind[levels.labels] == kind[reference]
        silence = np.isin(model.phones[levels.labels], self._silence)
        if self._options.one_silence_class:
            same |= silence & np.isin(model.phones[reference], self._silence)
        else:
            same &= ~silence
        return (same & (levels.labels != 0)).astype(np.float64)

    # -- and back

    def _summed(
        self,
        rows: NDArray[np.int32],
        cols: NDArray[np.int32],
        values: NDArray[np.float64],
        reference: Elements,
        output: NDArray[np.float32],
    ) -> Elements:
        """The derivative by `output`: `values`, one for each arc, summed at equal `rows`, `cols`.

        For mmi, 1 is added at each position of `reference`, which are the alignment's pdfs.
        """
        places = rows.astype(np.int64) * output.shape[1] + cols
        if self._options.criterion == "mmi":
            of_reference = reference.rows.astype(np.int64) * output.shape[1] + reference.cols
            if self._options.drop_frames:
                met = np.isin(of_reference, places[values != 0.0])
                kept = np.zeros(len(output), bool)
                kept[reference.rows[met]] = True
                places, values = places[kept[rows]], values[kept[rows]]
                of_reference = of_reference[met]
            places = np.concatenate([places, of_reference])
            values = np.concatenate([values, np.ones(len(of_reference))])
        unique, inverse = np.unique(places, return_inverse=True)
        sums = np.bincount(inverse, values, len(unique)).astype(np.float32)
        kept_rows, kept_cols = np.divmod(unique, output.shape[1])
        return Elements(kept_rows.astype(np.int32), kept_cols.astype(np.int32), sums)


def _rows(supervision: DiscriminativeSupervision, frames: NDArray[np.int32]) -> NDArray[np.int32]:
    """The output row (frame by frame) of each of `frames`, which are numbered by sequence first."""
    sequence, frame = np.divmod(frames, supervision.frames_per_sequence)
    return frame * supervision.num_sequences + sequence


def _alignment(supervision: DiscriminativeSupervision, pdfs: NDArray[np.int32]) -> Elements:
    rows = _rows(supervision, np.arange(supervision.num_frames, dtype=np.int32))
    values = np.full(len(rows), supervision.weight, np.float32)
    return Elements(rows, pdfs[supervision.num_ali], values)


def _rescored(lattice: Lattice, levels: LevelledLattice, likes: NDArray[np.float32]) -> Lattice:
    """A copy of the lattice in which the arcs `levels.arcs` have the acoustic costs -`likes`."""
    acoustic = lattice.acoustic.copy()
    frames = levels.labels != 0
    acoustic[levels.arcs[frames]] = -likes[frames]
    return replace(lattice, acoustic=acoustic, final_acoustic=np.zeros_like(lattice.final_acoustic))
