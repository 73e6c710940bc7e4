"""The LF-MMI objective of a network over examples (Kaldi's nnet-chain-diagnostics.cc)."""

from __future__ import annotations

from nnet3tools.chain.den_graph import DenominatorGraph
from nnet3tools.chain.languages import LanguageGraphs
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.output_objective import ChainOutputObjective
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io import log
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.tensor.arrays import Array
from nnet3tools.training.diagnostics import NnetComputeProb
from nnet3tools.training.diagnostics_options import ComputeProbOptions

_XENT_FOR_STATS = 0.1
"""Any number but 0: the -xent outputs and the statistics of their components are computed."""


class ChainComputeProb(NnetComputeProb):
    """Accumulates the chain objective, and optionally its derivative, over examples.

    If --xent-regularize is not 0, the cross-entropy of -xent outputs is computed, too. The
    derivative does not include the cross-entropy.
    """

    def __init__(
        self,
        options: ComputeProbOptions,
        chain: ChainTrainingOptions,
        graph: DenominatorGraph | LanguageGraphs,
        nnet: Nnet,
        compute_deriv: bool = False,
        store_stats_in_nnet: bool = False,
        like: Array | None = None,
        compiler: CachingOptimizingCompiler | None = None,
    ) -> None:
        """Prepare to run `nnet` on the device of `like` (None: host); `compiler` keeps programs.

        `compute_deriv`: sum derivatives; `store_stats_in_nnet`: let components add to statistics.
        """
        super().__init__(
            replace(options, compute_accuracy=False),
            nnet,
            compute_deriv,
            store_stats_in_nnet,
            like,
            compiler,
            ChainOutputObjective(chain, graph, apply_deriv_weights=False, xent_deriv=False),
        )

    def print_objective(self, name: str) -> None:
        """Log the average objective of the output `name`, in Kaldi's words for chain models."""
        totals = self.totals[name]
        log.log(
            f"Overall log-probability for '{name}' is {totals.average()} per frame, over "
            f"{totals.weight:g} frames."
        )


@dataclass(frozen=True)
class ChainDiagnostics:
    """Makes evaluators of models on chain examples, on the device of `like` (None: the host)."""

    options: ChainTrainingOptions
    graph: DenominatorGraph | LanguageGraphs
    like: Array | None = None

    def judging(self, nnet: Nnet, compiler: CachingOptimizingCompiler) -> ChainComputeProb:
        """A new object that computes objectives of `nnet`; `compiler` caches its programs."""
        return ChainComputeProb(
            ComputeProbOptions(), self.options, self.graph, nnet, like=self.like, compiler=compiler
        )

    def storing_stats(self, nnet: Nnet) -> ChainComputeProb:
        """An object that runs `nnet`, with -xent outputs, and stores its components' statistics."""
        options = self.options
        outputs = (name for i, name in enumerate(nnet.node_names) if nnet.is_output(i))
        if options.xent_regularize == 0.0 and any("-xent" in name for name in outputs):
            options = replace(options, xent_regularize=_XENT_FOR_STATS)
        return ChainComputeProb(
            ComputeProbOptions(),
            options,
            self.graph,
            nnet,
            store_stats_in_nnet=True,
            like=self.like,
        )
