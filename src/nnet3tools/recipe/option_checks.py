"""Checks of numbers and schedules among the options of all training programs."""

from __future__ import annotations

import math

from nnet3tools.errors import OptionError
from nnet3tools.recipe.options import CleanupOptions, OptimizationOptions, TrainerOptions
from nnet3tools.recipe.schedules import parse_dropout_schedule
from nnet3tools.training.minibatch_rules import MinibatchRules


def check_minibatch_size(name: str, rule: str) -> None:
    """OptionError unless `rule`, the value of --trainer.`name`, is a minibatch-size rule."""
    try:
        MinibatchRules(rule)
    except OptionError as error:
        raise OptionError(f"--trainer.{name}: {error}") from None


def check_trainer(
    trainer: TrainerOptions, optimization: OptimizationOptions, clean: CleanupOptions
) -> None:
    """OptionError for a malformed schedule, or a number out of range."""
    parse_dropout_schedule(trainer.dropout_schedule)
    for name, value, least in (
        ("trainer.num-epochs", trainer.num_epochs, 0.0),
        ("trainer.samples-per-iter", trainer.samples_per_iter, 1),
        ("trainer.optimization.num-jobs-initial", optimization.num_jobs_initial, 1),
        ("trainer.optimization.num-jobs-final", optimization.num_jobs_final, 1),
        ("trainer.optimization.num-jobs-step", optimization.num_jobs_step, 1),
        ("trainer.optimization.max-models-combine", optimization.max_models_combine, 1),
        ("cleanup.preserve-model-interval", clean.preserve_model_interval, 1),
        ("trainer.num-jobs-compute-prior", trainer.num_jobs_compute_prior, 1),
    ):
        if value < least:
            raise OptionError(f"--{name}={value:g}: expected at least {least:g}")
    for name, rate in (
        ("initial", optimization.initial_effective_lrate),
        ("final", optimization.final_effective_lrate),
    ):
        if not rate > 0.0 or not math.isfinite(rate):
            raise OptionError(
                f"--trainer.optimization.{name}-effective-lrate={rate:g}: expected a positive "
                "number"
            )
