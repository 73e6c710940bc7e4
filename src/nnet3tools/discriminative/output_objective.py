"""Discriminative objectives as trainers and diagnostics use them.

The order of steps is that of Kaldi's nnet-discriminative-training.cc.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.chain.sequence_objective import SequenceObjective
from nnet3tools.discriminative.example import NnetDiscriminativeSupervision
from nnet3tools.discriminative.objective import DiscriminativeObjective, Elements, Judged
from nnet3tools.discriminative.options import DiscriminativeOptions
from nnet3tools.errors import DataError, naming
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.operators.sparse_targets import set_elements
from nnet3tools.training.objective import Measured

_NOT_FINITE = -10.0
"""The cross-entropy of a minibatch if it is NaN."""


@dataclass
class Tally:
    """Sums over minibatches that are logged for one output: parts of the objective, l2 term.

    `positive` and `negative` sum derivative elements. For debugging, `gradients` and `output`
    (pdfs,) are sums of derivatives and of probabilities.
    """

    num_frames: int = 0
    weight: float = 0.0
    numerator: float = 0.0
    denominator: float = 0.0
    positive: float = 0.0
    negative: float = 0.0
    l2_term: float = 0.0
    gradients: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    output: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def add(self, judged: Judged, num_frames: int, l2_term: float) -> None:
        """Add the results of one minibatch to the sums."""
        self.num_frames += num_frames
        self.weight += judged.weight
        self.numerator += judged.numerator
        self.denominator += judged.denominator
        self.positive += judged.positive
        self.negative += judged.negative
        self.l2_term += l2_term


class DiscriminativeOutputObjective(SequenceObjective):
    """A discriminative criterion for each output in an example.

    With --xent-regularize, the cross-entropy of the -xent output with the alignment's pdfs is
    measured. `tallies` maps an output's name to further sums. If `for_training` is False, as in
    diagnostics, frame weights and the derivative of cross-entropy are not used.
    """

    def __init__(
        self,
        options: DiscriminativeOptions,
        model: AmNnet,
        apply_deriv_weights: bool = True,
        for_training: bool = True,
    ) -> None:
        """Prepare the criterion for `model`; OptionError if an option has an invalid value.

        Frame weights need both flags, the derivative of cross-entropy needs `for_training`.
        """
        weighted = apply_deriv_weights and for_training
        super().__init__(options.xent_regularize, for_training, weighted)
        self._options = options
        self._criterion = DiscriminativeObjective(options, model.transition_model, model.priors)
        self.tallies: dict[str, Tally] = {}

    def measure(
        self,
        supervision: NnetDiscriminativeSupervision,
        computer: NnetComputer,
        derivs: tuple[Array, ...],
    ) -> list[Measured]:
        """Measure the criterion and, for an -xent output, its cross-entropy with the alignment.

        The outputs are those that `computer` has computed. Derivatives are written to `derivs`, one
        array for each of the two, unless it is (). `tallies` is updated.
        """
        name = supervision.name
        output = computer.get_output(name)
        on_host = tensor.to_host(output)
        with naming(f"output '{name}' of an example"):
            judged = self._criterion.judge(supervision.supervision, on_host)
        l2_scale = supervision.supervision.weight * self._options.l2_regularize
        l2_term = -0.5 * l2_scale * tensor.dot(output, output) if l2_scale != 0.0 else 0.0
        tally = self.tallies.setdefault(name, Tally())
        tally.add(judged, supervision.supervision.num_frames, float(l2_term))
        self._accumulate(tally, judged.deriv, on_host)
        found = [Measured(name, judged.weight, judged.objective)]
        if derivs:
            _set(derivs[0], judged.deriv)
            if l2_scale != 0.0:
                tensor.add(derivs[0], output, alpha=-l2_scale)
        if self._has_xent:
            xent = self._cross_entropy(computer.get_output(f"{name}-xent"), judged.reference)
            found.append(Measured(f"{name}-xent", judged.weight, xent))
        if len(derivs) == 2:
            _set(derivs[1], judged.reference)
        return found

    @staticmethod
    def _cross_entropy(output: Array, reference: Elements) -> float:
        on_host = tensor.to_host(output)
        if reference.cols.max(initial=0) >= on_host.shape[1]:
            raise DataError(f"the -xent output has {on_host.shape[1]} columns: too few pdfs")
        values = on_host[reference.rows, reference.cols].astype(np.float64)
        total = float(values @ reference.values)
        return _NOT_FINITE if math.isnan(total) else total

    def _accumulate(self, tally: Tally, deriv: Elements, output: NDArray[np.float32]) -> None:
        """If options ask for it, add each pdf's sum of `deriv`, or of exp(`output`), to `tally`."""
        options, size = self._options, output.shape[1]
        if (options.accumulate_gradients or options.accumulate_output) and options.num_pdfs != size:
            raise DataError(f"--num-pdfs={options.num_pdfs}: the output has {size} columns")
        if options.accumulate_gradients:
            sums = np.bincount(deriv.cols, deriv.values, size).astype(np.float64)
            tally.gradients = tally.gradients + sums if len(tally.gradients) else sums
        if options.accumulate_output:
            sums = np.exp(output.astype(np.float64)).sum(axis=0)
            tally.output = tally.output + sums if len(tally.output) else sums


def _set(deriv: Array, elements: Elements) -> None:
    set_elements(deriv, elements.rows, elements.cols, elements.values)
