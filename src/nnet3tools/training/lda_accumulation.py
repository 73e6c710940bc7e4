"""LDA statistics of a network's output on examples, classes being their supervision."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import DataError, RequestError
from nnet3tools.graph.spot_checks import draw_graph_checks
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.table import SequentialTableReader
from nnet3tools.nnet.components.base import Properties
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.training.example import EncodedExample, ExampleTally, NnetExample
from nnet3tools.training.lda import LdaStats
from nnet3tools.training.merging import MERGEABLE_FRAMES, merge_examples
from nnet3tools.training.running import ExampleRunner, computation_request
from nnet3tools.training.same_layout import DECODABLE_EXAMPLES, prototype

# The statistics have a row for each class of an example's supervision.
_MAX_CLASSES = 1_000_000

_MOST_ROWS = 4096
"""The largest number of rows in examples that are computed together."""


class LdaAccumulator:
    """Accumulates LDA statistics over examples, weighted by the supervision of 'output'.

    A weight below `rand_prune` becomes `rand_prune` or 0 at random, with the weight as mean.
    """

    def __init__(self, nnet: Nnet, rand_prune: float = 0.0) -> None:
        self._rand_prune = np.float32(rand_prune)
        self._runner = ExampleRunner(nnet)
        # Kaldi's compiler draws from the same random numbers as the pruning.
        self._drawing = CachingOptimizingCompiler(nnet, after_exploring=draw_graph_checks)
        self.stats: LdaStats | None = None

    @property
    def may_merge(self) -> bool:
        """Whether merging examples into minibatches leaves the network's output unchanged."""
        components = self._runner.nnet.components
        return not any(c.couples_rows or c.properties & Properties.RANDOM for c in components)

    def accumulate(self, example: NnetExample, single: NnetExample | None = None) -> None:
        """Add an example, or a minibatch made of several examples, to the statistics.

        Random numbers are drawn as for `single`, one example of the minibatch. DataError if it does
        not fit the network or earlier ones, NotFiniteError for NaN or infinity, before any change.
        """
        example.check_finite()
        supervision = next((io.features for io in example.io if io.name == "output"), None)
        if supervision is None:
            raise DataError("example has no output named 'output'")
        output = tensor.to_host(self._runner.forward(example).get_output("output"))
        if not isinstance(supervision, SparseMatrix):
            supervision = SparseMatrix.from_dense(to_dense(supervision))
        num_classes = supervision.num_cols
        if num_classes > _MAX_CLASSES:
            raise DataError(f"example has {num_classes} classes: at most {_MAX_CLASSES} are taken")
        if self.stats is None:
            self.stats = LdaStats.empty(num_classes, output.shape[1])
        if num_classes != len(self.stats.zero):
            raise DataError(
                f"example has {num_classes} classes, those before it {len(self.stats.zero)}"
            )
        if self._rand_prune > 0.0:
            self._drawing.compile(
                computation_request(self._runner.nnet, single or example, False, False)
            )
        weights = self._pruned(supervision.values)
        self.stats.accumulate(output, supervision.row_numbers, supervision.indices, weights)

    def _pruned(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        small = np.flatnonzero((weights != 0.0) & (np.abs(weights) < self._rand_prune))
        if not len(small):
            return weights
        draws = np.array([tensor.random.rand_uniform() for _ in range(len(small))], np.float32)
        kept = draws <= np.abs(weights[small]).astype(np.float64) / np.float64(self._rand_prune)
        pruned = weights.copy()
        pruned[small] = np.copysign(np.where(kept, self._rand_prune, np.float32(0)), weights[small])
        return pruned


def accumulate_examples(accumulator: LdaAccumulator, rspecifier: str) -> int:
    """Add the examples of a table to the statistics; returns their number.

    Successive examples of one structure are computed together unless that changes the result.
    Examples with NaN are skipped. Other errors name the table and the example.
    """
    tally = ExampleTally(rspecifier)
    most_rows = _MOST_ROWS if accumulator.may_merge else 0
    with SequentialTableReader(rspecifier, DECODABLE_EXAMPLES) as examples:
        for run in _runs(examples, most_rows):
            try:
                merged = merge_examples([example for _, example in run], False)
                accumulator.accumulate(merged, prototype(run[0][1]))
                tally.count += len(run)
            except (DataError, RequestError):
                # No example of the run was added. Adding them one by one finds the faulty one.
                single = ((key, e if isinstance(e, NnetExample) else e.whole()) for key, e in run)
                tally.work(single, lambda _, example: accumulator.accumulate(example))
    tally.report()
    return tally.count


def _runs(
    examples: Iterable[tuple[str, NnetExample | EncodedExample]], most_rows: int
) -> Iterator[list[tuple[str, NnetExample | EncodedExample]]]:
    """Lists of successive examples of one structure, with up to `most_rows` rows per list."""
    for _, some in itertools.groupby(examples, lambda item: MERGEABLE_FRAMES.structure(item[1])):
        left = iter(some)
        for first in left:
            most = max(1, most_rows // prototype(first[1]).size)
            yield [first, *itertools.islice(left, most - 1)]
