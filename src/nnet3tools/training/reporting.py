"""Objective functions summed over minibatches, logged in the lines that Kaldi's scripts parse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.io import log
from nnet3tools.tensor.number import Number

__all__ = ["ObjectiveTotals", "ratio"]

_add_to_both = tensor.element("_1 += _3; _2 += _3")


def ratio(numerator: float, denominator: float) -> float:
    """The quotient, with C++'s nan or inf for a zero denominator."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.float64(numerator) / np.float64(denominator))


def _zeroed(total: Any) -> Any:
    if isinstance(total, Number):
        tensor.fill(total.array, 0.0)
        return total
    return 0.0


def _sums(total: Any, this_phase: Any, value: Any) -> tuple[Any, Any]:
    """Both with a value added: in place if they are a device's."""
    if isinstance(total, Number):
        _add_to_both(total.array, this_phase.array, value)
        return total, this_phase
    return total + value, this_phase + value


@dataclass
class ObjectiveTotals:
    """Totals of one output: over everything, and over the current phase of minibatches."""

    current_phase: int = 0
    minibatches_this_phase: int = 0
    weight: Any = 0.0
    objective: Any = 0.0
    weight_this_phase: Any = 0.0
    objective_this_phase: Any = 0.0

    @classmethod
    def on(cls, device: Any, dense: bool) -> ObjectiveTotals:
        """For the objectives, and the weights if targets are `dense`, that a GPU holds.

        They are added up in place there, which may be recorded. `device` is an array of it.
        """

        def number() -> Number:
            return Number(tensor.zeros(1, like=device, dtype=np.float64))

        weights = (number(), number()) if dense else (0.0, 0.0)
        return cls(0, 0, weights[0], number(), weights[1], number())

    def begin(self, output_name: str, minibatches_per_phase: int, minibatch: int) -> None:
        """Count one minibatch, to be added; log the phase that has just ended, if one has."""
        phase = minibatch // minibatches_per_phase
        if phase != self.current_phase:
            self._print_phase(output_name, minibatches_per_phase, phase)
            self.current_phase = phase
            self.weight_this_phase = _zeroed(self.weight_this_phase)
            self.objective_this_phase = _zeroed(self.objective_this_phase)
            self.minibatches_this_phase = 0
        self.minibatches_this_phase += 1

    def add_weight(self, weight: float) -> None:
        """Of this minibatch, or of a part of it."""
        self.weight, self.weight_this_phase = _sums(self.weight, self.weight_this_phase, weight)

    def add_objective(self, objective: float) -> None:
        """Of this minibatch, or of a part of it."""
        self.objective, self.objective_this_phase = _sums(
            self.objective, self.objective_this_phase, objective
        )

    def _print_phase(self, output_name: str, minibatches_per_phase: int, phase: int) -> None:
        first = self.current_phase * minibatches_per_phase
        last = phase * minibatches_per_phase - 1
        if self.minibatches_this_phase == minibatches_per_phase:
            which = f"' for minibatches {first}-{last}"
        else:
            # The quote is missing in Kaldi's line too, and scripts have learnt to live with it.
            which = (
                f" using {self.minibatches_this_phase} minibatches in minibatch range "
                f"{first}-{last}"
            )
        log.log(
            f"Average objective function for '{output_name}{which} is "
            f"{ratio(self.objective_this_phase, self.weight_this_phase):g} over "
            f"{self.weight_this_phase:g} frames."
        )

    def print_total(self, output_name: str) -> bool:
        """Log the overall average; whether there was any weight."""
        average = ratio(self.objective, self.weight)
        log.log(
            f"Overall average objective function for '{output_name}' is {average:g} over "
            f"{self.weight:g} frames."
        )
        log.log(
            "[this line is to be parsed by a script:] log-prob-per-frame="
            f"{float(np.float32(average)):g}"
        )
        return self.weight != 0.0
