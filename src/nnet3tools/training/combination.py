"""Finds the average of models with the best objective on examples (Kaldi's nnet3-combine)."""

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from nnet3tools.errors import DataError, naming
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.nnet.arithmetic import add_nnet, scale_nnet
from nnet3tools.nnet.components.base import Array, BatchStatisticsComponent
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.training.diagnostics import NnetComputeProb, recompute_stats
from nnet3tools.training.diagnostics_options import ComputeProbOptions
from nnet3tools.training.example import NnetExample


class Diagnostics(Protocol):
    """Creates the NnetComputeProb objects that combine_models needs for its kind of examples."""

    def judging(self, nnet: Nnet, compiler: CachingOptimizingCompiler) -> NnetComputeProb:
        """An object that computes the objective of `nnet`, whose programs `compiler` caches."""

    def storing_stats(self, nnet: Nnet) -> NnetComputeProb:
        """A new object that computes the objective and stores component statistics in `nnet`."""


@dataclass(frozen=True)
class FrameDiagnostics:
    """Diagnostics for frame-level examples, computed on the device of the array `like`."""

    like: Array | None = None

    def judging(self, nnet: Nnet, compiler: CachingOptimizingCompiler) -> NnetComputeProb:
        """A new object that computes the objective of `nnet`, without accuracies."""
        options = ComputeProbOptions(compute_accuracy=False)
        return NnetComputeProb(options, nnet, like=self.like, compiler=compiler)

    def storing_stats(self, nnet: Nnet) -> NnetComputeProb:
        """A new object that computes the objective and stores component statistics in `nnet`."""
        return NnetComputeProb(ComputeProbOptions(), nnet, store_stats_in_nnet=True, like=self.like)


def combine_models(
    models: Iterable[tuple[str, Nnet]],
    num_models: int,
    examples: list[NnetExample],
    max_evaluations: int,
    prepare: Callable[[Nnet], None],
    diagnostics: Diagnostics,
) -> Nnet:
    """The average of the first n models with the best objective, over n = 1 to `num_models`.

    `models` are (name, network), the last model of training first; only one is in memory at a time.
    At most `max_evaluations` averages are judged, by copies that `prepare` changes, say to test
    mode. Batch-norm statistics are computed afresh on the examples. DataError if a model's
    structure differs from the first model's, or examples have no supervision.
    """
    source = iter(models)
    _, average = next(source)
    judge = _Judge(average, examples, prepare, diagnostics)
    best, best_number = average.copy(), 1
    first_objective = best_objective = judge.objective(average)
    log.log(f"objective function using the last model is {first_objective:g}")
    step = math.ceil(num_models / max_evaluations)
    for number, (name, nnet) in enumerate(source, start=2):
        with naming(name):
            scale_nnet(average, (number - 1.0) / number)
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
    """Computes objectives of networks of one structure, whose programs are compiled once."""

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
        """The mean objective of `nnet` over all examples and outputs; -inf if it is not finite."""
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
