"""Finds the average of models with the best objective on examples (Kaldi's nnet3-combine)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from nnet3tools.errors import DataError, naming
from nnet3tools.io import log
from nnet3tools.nnet.arithmetic import add_nnet, scale_nnet
from nnet3tools.nnet.components.base import Array, BatchStatisticsComponent
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.training.diagnostics import NnetComputeProb, recompute_stats
from nnet3tools.training.diagnostics_options import ComputeProbOptions
from nnet3tools.training.example import NnetExample


class Diagnostics(Protocol):
    """Makes the NnetComputeProb of a network for one kind of examples."""

    def judging(self, nnet: Nnet, compiler: CachingOptimizingCompiler) -> NnetComputeProb:
        """Computes the objective of `nnet`; `compiler` caches programs of its structure."""

    def storing_stats(self, nnet: Nnet) -> NnetComputeProb:
        """Computes the objective of `nnet` and stores component statistics in it."""


@dataclass(frozen=True)
class FrameDiagnostics:
    """Diagnostics of frame-level examples, computed on the device of the array `like`."""

    like: Array | None = None

    def judging(self, nnet: Nnet, compiler: CachingOptimizingCompiler) -> NnetComputeProb:
        """Computes the objective of `nnet` without accuracies."""
        options = ComputeProbOptions(compute_accuracy=False)
        return NnetComputeProb(options, nnet, like=self.like, compiler=compiler)

    def storing_stats(self, nnet: Nnet) -> NnetComputeProb:
        """Computes objective, accuracies and component statistics of `nnet`."""
        return NnetComputeProb(ComputeProbOptions(), nnet, store_stats_in_nnet=True, like=self.like)


def combine_models(
    models: Iterable[tuple[str, Nnet]],
    num_models: int,
    examples: list[NnetExample],
    max_evaluations: int,
    prepare: Callable[[Nnet], None],
    diagnostics: Diagnostics,
) -> Nnet:
    """The best of the averages of the first n of `num_models` models; the last comes first.

    `models` are (name, network), of which one at a time is held; at most `max_evaluations` averages
    are judged, by the objective of a copy that `prepare` has changed. Statistics of batch
    normalisation are computed afresh on the examples. DataError for a model of another structure
    than the first, or examples without supervision.
    """
    source = iter(models)
    _, average = next(source)
    judge = _Judge(average, examples, prepare, diagnostics)
    best, best_number = average.copy(), 1
    first_objective = best_objective = judge.objective(average)
    log.log(f"objective function using the last model is {first_objective:g}")
    step = math.ceil(num_models / max_evaluations)
    for number, (name, nnet) in enumerate(source, start=2):
        scale_nnet(average, (number - 1.0) / number)
        with naming(name):
            add_nnet(average, nnet, 1.0 / number)
        if (number - 1) % step and number != num_models:
            continue
        objective = judge.objective(average)
        log.log(f"Combining last {number} models, objective function is {objective:g}")
        if objective > best_objective:
            best, best_number, best_objective = average.copy(), number, objective
    log.log(
        f"Combining {best_number} nnets, objective function changed from {first_objective:g} to "
        f"{best_objective:g}"
    )
    if any(isinstance(component, BatchStatisticsComponent) for component in best.components):
        recompute_stats(examples, best, diagnostics.storing_stats)
    return best


class _Judge:
    """Objective functions of networks of one structure; their programs are compiled once."""

    def __init__(
        self,
        nnet: Nnet,
        examples: list[NnetExample],
        prepare: Callable[[Nnet], None],
        diagnostics: Diagnostics,
    ) -> None:
        self._examples, self._prepare, self._diagnostics = examples, prepare, diagnostics
        self._compiler = CachingOptimizingCompiler(nnet.copy())

    def objective(self, nnet: Nnet) -> float:
        """The mean objective over the examples and all outputs; -inf if it is not finite."""
        nnet = nnet.copy()
        self._prepare(nnet)
        prob = self._diagnostics.judging(nnet, self._compiler)
        for example in self._examples:
            prob.compute(example)
        weight = sum(float(totals.weight) for totals in prob.totals.values())
        if not weight > 0.0:
            raise DataError("the examples have no supervision: their total weight is not positive")
        total = sum(float(t.objective) + float(t.auxiliary) for t in prob.totals.values())
        mean = total / weight
        return mean if math.isfinite(mean) else -math.inf
