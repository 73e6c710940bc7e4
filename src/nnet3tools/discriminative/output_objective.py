"""Discriminative objectives as trainers and diagnostics use them.

The order of steps is that of Kaldi's nnet-discriminative-training.cc.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.discriminative.example import NnetDiscriminativeSupervision
from nnet3tools.discriminative.objective import DiscriminativeObjective, Elements, Judged
from nnet3tools.discriminative.options import DiscriminativeOptions
from nnet3tools.errors import DataError, naming
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.graph.request import IoSpecification
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.sparse_targets import set_elements
from nnet3tools.training.example import NnetExample
from nnet3tools.training.objective import Evaluation, Measured, Objective, outputs_with_xent

__all__ = ["DiscriminativeOutputObjective", "Tally"]

_NOT_FINITE = -10.0
"""What a cross-entropy that is not a number counts."""

_weight_rows = tensor.element("_1 *= _2")


@dataclass
class Tally:
    """What is counted of one output, over all minibatches, beside its objective."""

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
        """Count one minibatch."""
        self.num_frames += num_frames
        self.weight += judged.weight
        self.numerator += judged.numerator
        self.denominator += judged.denominator
        self.positive += judged.positive
        self.negative += judged.negative
        self.l2_term += l2_term


class DiscriminativeOutputObjective(Objective):
    """A discriminative criterion for the outputs that examples name.

    With --xent-regularize, cross-entropy with the alignment's pdfs for those named NAME-xent, too.
    `tallies` hold more about each output. Diagnostics want neither the weights of frames nor the
    derivative of cross-entropy (`for_training`).
    """

    def __init__(
        self,
        options: DiscriminativeOptions,
        model: AmNnet,
        apply_deriv_weights: bool = True,
        for_training: bool = True,
    ) -> None:
        """OptionError for options that make no sense."""
        self._options = options
        self._criterion = DiscriminativeObjective(options, model.transition_model, model.priors)
        self._apply_deriv_weights = apply_deriv_weights and for_training
        self._xent_deriv = for_training
        self.tallies: dict[str, Tally] = {}

    def outputs(self, nnet: Nnet, example: NnetExample, need_deriv: bool) -> list[IoSpecification]:
        """Each output, followed by its -xent."""
        specs = [
            IoSpecification(supervision.name, supervision.indexes, need_deriv)
            for supervision in example.supervisions
        ]
        has_xent = self._options.xent_regularize != 0.0
        return outputs_with_xent(nnet, specs, has_xent, self._xent_deriv)

    def evaluations(
        self, nnet: Nnet, example: NnetExample, computer: NnetComputer, need_deriv: bool
    ) -> list[Evaluation]:
        """One for each output, together with its -xent."""
        found = []
        for supervision in example.supervisions:
            name, lattice = supervision.name, supervision.supervision
            names = (name, f"{name}-xent") if self._options.xent_regularize != 0.0 else (name,)
            derivs = [computer.input_buffer(name)] if need_deriv else []
            if need_deriv and len(names) == 2 and self._xent_deriv:
                derivs.append(computer.input_buffer(names[1]))
            run = partial(self._evaluate, supervision, computer, derivs)
            weight = lattice.weight * lattice.num_frames
            found.append(Evaluation(names, tuple(derivs), weight, run, is_alike=False))
        return found

    def _evaluate(
        self,
        supervision: NnetDiscriminativeSupervision,
        computer: NnetComputer,
        derivs: list[Array],
    ) -> list[Measured]:
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
            self._weight_frames(supervision, derivs[0])
        if self._options.xent_regularize != 0.0:
            xent = self._cross_entropy(computer.get_output(f"{name}-xent"), judged.reference)
            found.append(Measured(f"{name}-xent", judged.weight, xent))
        if len(derivs) == 2:
            _set(derivs[1], judged.reference)
            self._weight_frames(supervision, derivs[1])
            tensor.scale(derivs[1], self._options.xent_regularize)
        return found

    @staticmethod
    def _cross_entropy(output: Array, reference: Elements) -> float:
        on_host = tensor.to_host(output)
        if reference.cols.max(initial=0) >= on_host.shape[1]:
            raise DataError(f"the -xent output has {on_host.shape[1]} columns: too few pdfs")
        values = on_host[reference.rows, reference.cols].astype(np.float64)
        total = float(values @ reference.values)
        return _NOT_FINITE if math.isnan(total) else total

    def _weight_frames(self, supervision: NnetDiscriminativeSupervision, deriv: Array) -> None:
        weights = supervision.deriv_weights
        if self._apply_deriv_weights and len(weights):
            _weight_rows(deriv, tensor.asarray(weights, like=deriv)[:, None])

    def _accumulate(self, tally: Tally, deriv: Elements, output: NDArray[np.float32]) -> None:
        """Sums over frames by pdf, for debugging."""
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
