"""Objective, accuracy and derivative of a network over examples (Kaldi's nnet-diagnostics.cc)."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from nnet3tools import tensor
from nnet3tools.executor.finite_watch import FiniteWatch
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.general_matrix import GeneralMatrix, to_dense
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.nnet.arithmetic import scale_nnet, set_as_gradient, zero_stats
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import OutputNode
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.training.diagnostics_options import ComputeProbOptions
from nnet3tools.training.example import NnetExample, string_hash
from nnet3tools.training.objective import FrameObjective, Objective
from nnet3tools.training.reporting import Sums, ratio
from nnet3tools.training.running import ExampleRunner
from nnet3tools.training.std_order import HashOrder


class Accuracy(NamedTuple):
    """Arrays (dim,): for each class of the supervision, the weight of all and of correct rows."""

    weight: np.ndarray
    correct: np.ndarray


def compute_accuracy(supervision: GeneralMatrix, output: Array) -> Accuracy:
    """By column, the weights of all rows and of rows with the same argmax in `output`, as float64.

    A row counts in the column where its supervision is largest; its weight is the row's sum.
    """
    _num_rows, dim = output.shape
    best = tensor.to_host(output).argmax(axis=1)
    weights, classes = _row_labels(supervision)
    right = best == classes
    return Accuracy(
        np.bincount(classes, weights, dim), np.bincount(classes[right], weights[right], dim)
    )


def _row_labels(supervision: GeneralMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays (rows,): the sum of each row and the first column with its largest value."""
    if not isinstance(supervision, SparseMatrix):
        dense = to_dense(supervision)
        return dense.sum(axis=1, dtype=np.float64), dense.argmax(axis=1)
    rows, values = supervision.row_numbers, supervision.values
    num_rows = supervision.shape[0]
    largest = np.full(num_rows, -np.inf)
    np.maximum.at(largest, rows, values)
    best = np.flatnonzero(values == largest[rows])
    best_rows, first = np.unique(rows[best], return_index=True)
    classes = np.zeros(num_rows, np.intp)
    classes[best_rows] = supervision.indices[best[first]]
    return np.bincount(rows, values, num_rows), classes


@dataclass
class OutputTotals(Sums):
    """Sums of weights, objectives and accuracies of one output over examples."""

    accuracy: Accuracy | None = None


class NnetComputeProb:
    """Accumulates objective, accuracy and optionally the model derivative over examples.

    With `compute_deriv` the derivative is accumulated in `deriv_nnet`, a gradient copy of the
    network. With `store_stats_in_nnet` component statistics go into `nnet`.
    """

    def __init__(
        self,
        options: ComputeProbOptions,
        nnet: Nnet,
        compute_deriv: bool = False,
        store_stats_in_nnet: bool = False,
        like: Array | None = None,
        compiler: CachingOptimizingCompiler | None = None,
        objective: Objective | None = None,
    ) -> None:
        """Prepare to compute the network on the device of the array `like` (default: the host).

        With `compute_deriv` derivatives are summed, with `store_stats_in_nnet` statistics.
        `compiler` may have programs of an equal network. `objective` None: FrameObjective.
        """
        self.options = options
        self.nnet = nnet
        self.deriv_nnet: Nnet | None = None
        if compute_deriv:
            self.deriv_nnet = nnet.copy()
            scale_nnet(self.deriv_nnet, 0.0)
            set_as_gradient(self.deriv_nnet)
        self._runner = ExampleRunner(
            nnet,
            compiler or CachingOptimizingCompiler(nnet, options.optimization, options.compiler),
            options.computation,
            self.deriv_nnet,
            need_model_derivative=compute_deriv,
            store_component_stats=store_stats_in_nnet,
            like=like,
            objective=objective or FrameObjective(),
        )
        # A second run would count statistics twice.
        self._watch = None if store_stats_in_nnet else FiniteWatch()
        self.totals: dict[str, OutputTotals] = {}

    @property
    def ahead(self) -> ExampleRunner | None:
        """The ExampleRunner that prepares the next examples on a GPU; None on a CPU."""
        return self._runner.ahead

    def compute(self, example: NnetExample) -> None:
        """Add one example (usually a minibatch) to the sums."""
        with self._runner.ready(example) as ready:
            self._compute(example, ready)

    def _compute(self, example: NnetExample, ready: NnetExample) -> None:
        """Add one example: accuracy from `example` as read, objective from the checked `ready`."""
        computer = self._runner.forward(ready)
        if self._watch is not None:
            again = partial(self._runner.forward, ready)
            for name in computer.available_outputs():
                self._watch.look(f"'{name}'", computer.get_output(name), computer, again)
        need_deriv = self.deriv_nnet is not None
        read = {io.name: io.features for io in example.io}
        evaluations = self._runner.evaluations(ready, computer)
        for measured in (m for evaluation in evaluations for m in evaluation.run()):
            totals = self.totals.setdefault(measured.name, OutputTotals())
            totals.add(measured)
            if self.options.compute_accuracy:
                output = computer.get_output(measured.name)
                new, old = compute_accuracy(read[measured.name], output), totals.accuracy
                totals.accuracy = (
                    new
                    if old is None
                    else Accuracy(*(a + b for a, b in zip(old, new, strict=True)))
                )
        if need_deriv:
            computer.run()

    def print_total_stats(self) -> bool:
        """Log objectives, then accuracies, as Kaldi does; returns whether any weight is not 0."""
        order = HashOrder()
        for name in self.totals:
            order.insert(name, string_hash(name))
        names = [str(name) for name in order]
        for name in names:
            self.print_objective(name)
        for name in names:
            self._print_accuracy(name)
        self._runner.log_time()
        return any(totals.weight > 0 for totals in self.totals.values())

    def print_objective(self, name: str) -> None:
        """Log the average objective of the output `name`."""
        totals = self.totals[name]
        node = self.nnet.nodes[self.nnet.node_index(name)]
        linear = isinstance(node, OutputNode) and node.objective == "linear"
        log.log(
            f"Overall {'log-likelihood' if linear else 'objective'} for '{name}' is "
            f"{ratio(totals.objective, totals.weight):g} per frame, over {totals.weight:g} frames."
        )

    def _print_accuracy(self, name: str) -> None:
        accuracy = self.totals[name].accuracy
        if accuracy is None:
            return
        weight, correct = accuracy.weight.sum(), accuracy.correct.sum()
        log.log(
            f"Overall accuracy for '{name}' is {ratio(correct, weight):g} per frame, over "
            f"{weight:g} frames."
        )
        if self.options.compute_per_dim_accuracy:
            seen = accuracy.weight != 0
            values = np.where(seen, accuracy.correct / np.where(seen, accuracy.weight, 1.0), -1.0)
            text = " ".join(f"{value:g}" for value in values)
            log.log(
                f"Overall per-dim accuracy vector for '{name}' is  [ {text} ] per frame, over "
                f"{weight:g} frames."
            )


def recompute_stats(
    examples: Iterable[NnetExample], nnet: Nnet, make: Callable[[Nnet], NnetComputeProb]
) -> None:
    """Compute the statistics of components of `nnet` (batch norm) afresh on the examples.

    `make(nnet)` returns a NnetComputeProb that stores statistics in `nnet`.
    """
    log.log("Recomputing stats on nnet (affects batch-norm)")
    zero_stats(nnet)
    computer = make(nnet)
    for example in examples:
        computer.compute(example)
    computer.print_total_stats()
    log.log("Done recomputing stats.")
