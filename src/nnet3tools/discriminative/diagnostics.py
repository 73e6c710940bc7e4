"""A discriminative objective of a network over examples (nnet-discriminative-diagnostics.cc)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.discriminative.options import DiscriminativeOptions
from nnet3tools.discriminative.output_objective import DiscriminativeOutputObjective, Tally
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.tensor.arrays import Array
from nnet3tools.training.diagnostics import NnetComputeProb
from nnet3tools.training.diagnostics_options import ComputeProbOptions
from nnet3tools.training.reporting import ratio


class DiscriminativeComputeObjf(NnetComputeProb):
    """Accumulates the objective over examples, and cross-entropy if --xent-regularize is set."""

    def __init__(
        self,
        options: ComputeProbOptions,
        discriminative: DiscriminativeOptions,
        model: AmNnet,
        like: Array | None = None,
    ) -> None:
        """Prepare to run the network of `model` on the device of `like` (default: the host)."""
        self._criterion = discriminative.criterion
        self._judge = DiscriminativeOutputObjective(discriminative, model, for_training=False)
        super().__init__(
            replace(options, compute_accuracy=False), model.nnet, like=like, objective=self._judge
        )

    def print_objective(self, name: str) -> None:
        """Log the average objective of the output `name`, in Kaldi's words."""
        totals, tally = self.totals[name], self._judge.tallies.get(name)
        l2 = ""
        if tally is not None:
            self._print_details(tally, totals.objective)
            if tally.l2_term != 0.0:
                l2 = f" + {ratio(tally.l2_term, totals.weight):g}"
        log.log(
            f"Overall {self._criterion} objective for '{name}' is "
            f"{ratio(totals.objective, totals.weight):g}{l2} per frame, over {totals.weight:g} "
            "frames."
        )

    def _print_details(self, tally: Tally, objective: float) -> None:
        weight = tally.weight
        average = ratio(objective, weight)
        if self._criterion == "mmi":
            log.log(
                f"Number of frames is {tally.num_frames} (weighted: {weight:g}), average (num or "
                f"den) posterior per frame is {ratio(tally.positive, weight):g}"
            )
            log.log(
                f"MMI objective function is {ratio(tally.numerator, weight):g} - "
                f"{ratio(tally.denominator, weight):g} = {average:g} per frame, over {weight:g} "
                "frames."
            )
        else:
            name = self._criterion.upper()
            counts = ratio(tally.positive + tally.negative, weight)
            log.log(
                f"Average num+den count of {name} stats is {counts:g} per frame, over {weight:g} "
                "frames"
            )
            log.log(f"{name} objective function is {average:g} per frame, over {weight:g} frames.")
        if len(tally.gradients):
            log.log(
                "Vector of average gradients wrt output activations is: \n"
                + _shown(tally.gradients / weight)
            )
        if len(tally.output):
            log.log("Average DNN output is: \n" + _shown(tally.output / weight))


def _shown(vector: NDArray[np.float64]) -> str:
    return f" [ {' '.join(f'{value:g}' for value in vector)} ]"
