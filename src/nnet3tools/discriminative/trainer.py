"""Discriminative training of a network (Kaldi's NnetDiscriminativeTrainer)."""

from __future__ import annotations

from nnet3tools.discriminative.options import DiscriminativeOptions
from nnet3tools.discriminative.output_objective import DiscriminativeOutputObjective
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.arrays import Array
from nnet3tools.training.example import NnetExample
from nnet3tools.training.reporting import ObjectiveTotals, ratio
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from nnet3tools.training.update import MaxChange, scale_change


class NnetDiscriminativeTrainer(NnetTrainer):
    """Trains a network by a discriminative criterion, as Kaldi does.

    Only the parameter change as a whole is limited. There is no l2 regularization of parameters, no
    orthonormal constraint, no backstitch, and batch-norm statistics are not scaled.
    """

    def __init__(
        self,
        options: NnetTrainerOptions,
        discriminative: DiscriminativeOptions,
        model: AmNnet,
        nnet: Nnet,
        like: Array | None = None,
        loss_scaling: bool = False,
        apply_deriv_weights: bool = True,
    ) -> None:
        """Prepare training of `nnet`; `model` has the transition model and the priors.

        The network is trained on the device of the array `like` (default: the host). With
        `loss_scaling` (GPU only) derivatives are scaled for half precision. Without
        `apply_deriv_weights`, frame weights are not used.
        """
        self._criterion = discriminative.criterion
        self._judge = DiscriminativeOutputObjective(discriminative, model, apply_deriv_weights)
        options = replace(options, backstitch_training_scale=0.0)
        super().__init__(options, nnet, like, loss_scaling, self._judge)
        count = len(nnet.updatable_components())
        self._max_change = MaxChange(count, like, limit_components=False)

    def _draw_seed(self) -> int:
        return 0  # nothing is drawn before the first minibatch

    def _train_once(self, example: NnetExample) -> None:
        self._accumulate_change(example, "")
        self._run("parameter update", self._update_plainly)

    def _update_plainly(self) -> None:
        momentum = self.options.momentum
        self._update(1.0, 1.0 - momentum)
        if momentum != 0.0:
            self._max_change.drop_if_not_applied(self._delta)
        scale_change(self._delta, momentum)

    def _print_total(self, name: str, totals: ObjectiveTotals) -> bool:
        """Log the totals of the output `name`; returns whether it had data."""
        weight = totals.all.weight
        if (tally := self._judge.tallies.get(name)) is not None:
            counts = ratio(tally.positive + tally.negative, weight)
            log.log(
                f"Average num+den count of stats is {counts:g} per frame, over {weight:g} frames."
            )
            if tally.l2_term != 0.0:
                log.log(
                    f"Average l2 norm of output per frame is {ratio(tally.l2_term, weight):g} over "
                    f"{weight:g} frames."
                )
        average = ratio(totals.all.objective, weight)
        log.log(
            f"Overall average objective function for '{name}' is {average:g} over {weight:g} "
            "frames."
        )
        log.log(f"[this line is to be parsed by a script:] {self._criterion}-per-frame={average:g}")
        return weight != 0.0
