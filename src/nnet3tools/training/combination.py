"""The average of the last models that is best on some examples (Kaldi's nnet3-combine)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from nnet3tools.errors import DataError, naming
from nnet3tools.io import log
from nnet3tools.nnet.arithmetic import add_nnet, scale_nnet
from nnet3tools.nnet.components.base import Array, BatchStatisticsComponent
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.training.diagnostics import ComputeProbOptions, NnetComputeProb, recompute_stats
from nnet3tools.training.example import NnetExample

__all__ = ["combine_models"]


def combine_models(
    models: Iterable[tuple[str, Nnet]],
    num_models: int,
    examples: list[NnetExample],
    max_evaluations: int,
    prepare: Callable[[Nnet], None],
    like: Array | None = None,
) -> Nnet:
    """The best of the averages of the first n of `num_models` models; the last comes first.

    `models` are (name, network), of which one at a time is held; at most `max_evaluations` averages
    are judged, by the objective of a copy that `prepare` has changed. Statistics of batch
    normalisation are computed afresh on the examples. `like` is any array of the device to compute
    on. DataError for a model of another structure than the first, or examples without supervision.
    """
    source = iter(models)
    _, average = next(source)
    judge = _Judge(average, examples, prepare, like)
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
        recompute_stats(examples, best, like)
    return best


class _Judge:
    """Objective functions of networks of one structure; their programs are compiled once."""

    def __init__(
        self,
        nnet: Nnet,
        examples: list[NnetExample],
        prepare: Callable[[Nnet], None],
        like: Array | None,
    ) -> None:
        self._examples, self._prepare, self._like = examples, prepare, like
        self._compiler = CachingOptimizingCompiler(nnet.copy())

    def objective(self, nnet: Nnet) -> float:
        """The mean over the examples and all outputs; -inf if it is not finite."""
        nnet = nnet.copy()
        self._prepare(nnet)
        prob = NnetComputeProb(
            ComputeProbOptions(compute_accuracy=False),
            nnet,
            like=self._like,
            compiler=self._compiler,
        )
        for example in self._examples:
            prob.compute(example)
        weight = sum(float(totals.weight) for totals in prob.totals.values())
        if not weight > 0.0:
            raise DataError("the examples have no supervision: their total weight is not positive")
        mean = sum(float(totals.objective) for totals in prob.totals.values()) / weight
        return mean if math.isfinite(mean) else -math.inf
