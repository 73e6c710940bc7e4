"""LDA statistics of a network's output on examples, classes being their supervision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.graph.spot_checks import draw_graph_checks
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.training.example import NnetExample
from nnet3tools.training.lda import LdaStats
from nnet3tools.training.running import ExampleRunner

__all__ = ["LdaAccumulator"]

# There is a row of statistics for each class that an example claims to choose from.
_MAX_CLASSES = 1_000_000


class LdaAccumulator:
    """Accumulates over examples, each element of the supervision of 'output' with its weight.

    Weights below `rand_prune` become it or zero, at random, so that they are right on average.
    """

    def __init__(self, nnet: Nnet, rand_prune: float = 0.0) -> None:
        self._rand_prune = np.float32(rand_prune)
        # Kaldi's compiler draws from the numbers that decide on the pruning.
        draw = draw_graph_checks if rand_prune > 0.0 else None
        compiler = CachingOptimizingCompiler(nnet, after_exploring=draw)
        self._runner = ExampleRunner(nnet, compiler)
        self.stats: LdaStats | None = None

    def accumulate(self, example: NnetExample) -> None:
        """Add an example; DataError for one that fits neither the network nor those before it.

        NotFiniteError for one with NaN or infinity.
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
        weights = self._pruned(supervision.values)
        self.stats.accumulate(output, supervision.row_numbers, supervision.indices, weights)

    def _pruned(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        small = np.flatnonzero((weights != 0.0) & (np.abs(weights) < self._rand_prune))
        if not len(small):
            return weights
        draws = np.array([tensor.random.rand_uniform() for _ in small], np.float32)
        kept = draws <= np.abs(weights[small]).astype(np.float64) / np.float64(self._rand_prune)
        pruned = weights.copy()
        pruned[small] = np.copysign(np.where(kept, self._rand_prune, np.float32(0)), weights[small])
        return pruned
