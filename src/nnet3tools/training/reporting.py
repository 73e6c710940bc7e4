"""Sums objectives over minibatches and logs them in the lines that Kaldi's scripts parse."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io import log
from nnet3tools.tensor.number import Number
from nnet3tools.training.objective import Measured

_add_to_both = tensor.element("_1 += _3; _2 += _3")


def ratio(numerator: float, denominator: float) -> float:
    """`numerator` / `denominator`; nan or inf for a zero denominator, as in C++."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.float64(numerator) / np.float64(denominator))


def _zeroed(total: Any) -> Any:
    if isinstance(total, Number):
        tensor.fill(total.array, 0.0)
        return total
    return 0.0


def _sums(total: Any, this_phase: Any, value: Any) -> tuple[Any, Any]:
    """Both totals plus `value`, added in place if they are on a device."""
    if isinstance(total, Number):
        if value.__class__ is not float or value != 0.0:
            _add_to_both(total.array, this_phase.array, value)
        return total, this_phase
    return total + value, this_phase + value


@dataclass
class Sums:
    """Weight, objective and regularization term of an output, summed over minibatches.

    On a device they may be Numbers, whose values are copied to the host when they are read.
    """

    weight: Any = 0.0
    objective: Any = 0.0
    auxiliary: Any = 0.0

    def add(self, measured: Measured) -> None:
        """Add one minibatch's results to the sums."""
        self.weight += measured.weight
        self.objective += measured.objective
        self.auxiliary += measured.auxiliary

    def average(self) -> str:
        """The text "objective" or "objective + auxiliary = sum", each divided by the weight."""
        objective = ratio(self.objective, self.weight)
        if self.auxiliary == 0.0:
            return f"{objective:g}"
        auxiliary = ratio(self.auxiliary, self.weight)
        return f"{objective:g} + {auxiliary:g} = {objective + auxiliary:g}"


@dataclass
class ObjectiveTotals:
    """Totals of an output over all minibatches, and over those since the last logged average."""

    current_phase: int = 0
    minibatches_this_phase: int = 0
    all: Sums = field(default_factory=Sums)
    this_phase: Sums = field(default_factory=Sums)

    @classmethod
    def on(cls, device: Any, dense: bool, auxiliary: bool = False) -> ObjectiveTotals:
        """Totals of zero, as arrays on the device of `device` that are updated in place.

        With `dense` targets the weights are on the device, too. With `auxiliary` there is also a
        regularization term.
        """

        def number() -> Number:
            return Number(tensor.zeros(1, like=device, dtype=np.float64))

        sums = (
            Sums(number() if dense else 0.0, number(), number() if auxiliary else 0.0)
            for _ in range(2)
        )
        return cls(0, 0, *sums)

    def begin(self, output_name: str, minibatches_per_phase: int, minibatch: int) -> None:
        """Start minibatch number `minibatch`; at a phase's end, log the average of the phase."""
        phase = minibatch // minibatches_per_phase
        if phase != self.current_phase:
            self._print_phase(output_name, minibatches_per_phase, phase)
            self.current_phase = phase
            sums = self.this_phase
            zeros = map(_zeroed, (sums.weight, sums.objective, sums.auxiliary))
            self.this_phase = Sums(*zeros)
            self.minibatches_this_phase = 0
        self.minibatches_this_phase += 1

    def add_weight(self, weight: float) -> None:
        """Add the weight of this minibatch, or of a part of it."""
        whole, phase = self.all, self.this_phase
        whole.weight, phase.weight = _sums(whole.weight, phase.weight, weight)

    def add_objective(self, objective: float, auxiliary: float = 0.0) -> None:
        """Add the objective and regularization term of this minibatch, or of a part of it."""
        whole, phase = self.all, self.this_phase
        whole.objective, phase.objective = _sums(whole.objective, phase.objective, objective)
        whole.auxiliary, phase.auxiliary = _sums(whole.auxiliary, phase.auxiliary, auxiliary)

    def _print_phase(self, output_name: str, minibatches_per_phase: int, phase: int) -> None:
        first = self.current_phase * minibatches_per_phase
        last = phase * minibatches_per_phase - 1
        if self.minibatches_this_phase == minibatches_per_phase:
            which = f"' for minibatches {first}-{last}"
        else:
            # As in Kaldi: no quote without a second term, one space too many with one.
            quote, space = ("'", " ") if self.this_phase.auxiliary != 0.0 else ("", "")
            which = (
                f"{quote} using {self.minibatches_this_phase} minibatches in {space}minibatch "
                f"range {first}-{last}"
            )
        log.log(
            f"Average objective function for '{output_name}{which} is {self.this_phase.average()} "
            f"over {self.this_phase.weight:g} frames."
        )

    def print_total(self, output_name: str) -> bool:
        """Log the average over all minibatches; returns whether there was any weight."""
        log.log(
            f"Overall average objective function for '{output_name}' is {self.all.average()} over "
            f"{self.all.weight:g} frames."
        )
        log.log(
            "[this line is to be parsed by a script:] log-prob-per-frame="
            f"{float(np.float32(ratio(self.all.objective, self.all.weight))):g}"
        )
        return self.all.weight != 0.0
