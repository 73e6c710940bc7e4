"""Posteriors of pdfs under the denominator graph alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.den_graph import DenominatorGraph
from nnet3tools.chain.objective import are_near_sums
from nnet3tools.tensor.kernel_policy import run_compiled
from nnet3tools.tensor.operators.leaky_hmm import LOG_PROB, leaky_hmm
from nnet3tools.tensor.operators.random import rand_int


def denominator_posteriors(
    graph: DenominatorGraph, output: NDArray[np.float32], leak: float
) -> tuple[float, NDArray[np.float32] | None]:
    """The log-probability and posteriors (frames, pdfs) of an utterance in the graph, on the host.

    `leak` is the leaky-HMM coefficient. The posteriors are None if a check sum is wrong.
    """
    rand_int(0, 99)  # Kaldi draws whether to check the range of outputs
    results, posteriors = np.zeros(3), np.zeros_like(output)
    run_compiled(leaky_hmm, results, output, graph.hmm, 1, leak, posteriors)
    log_prob = float(results[LOG_PROB])
    if not (are_near_sums(results, 1) and math.isfinite(log_prob)):
        return log_prob, None
    return log_prob, posteriors
