"""Objective functions summed over minibatches, logged in the lines that Kaldi's scripts parse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnet3tools.io import log

__all__ = ["ObjectiveTotals", "ratio"]


def ratio(numerator: float, denominator: float) -> float:
    """The quotient, with C++'s nan or inf for a zero denominator."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.float64(numerator) / np.float64(denominator))


@dataclass
class ObjectiveTotals:
    """Totals of one output: over everything, and over the current phase of minibatches."""

    current_phase: int = 0
    minibatches_this_phase: int = 0
    weight: float = 0.0
    objective: float = 0.0
    weight_this_phase: float = 0.0
    objective_this_phase: float = 0.0

    def update(
        self,
        output_name: str,
        minibatches_per_phase: int,
        minibatch: int,
        weight: float,
        objective: float,
    ) -> None:
        """Add one minibatch; log the phase that has just ended, if one has."""
        phase = minibatch // minibatches_per_phase
        if phase != self.current_phase:
            self._print_phase(output_name, minibatches_per_phase, phase)
            self.current_phase = phase
            self.weight_this_phase = self.objective_this_phase = 0.0
            self.minibatches_this_phase = 0
        self.minibatches_this_phase += 1
        self.weight_this_phase += weight
        self.objective_this_phase += objective
        self.weight += weight
        self.objective += objective

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
