"""The quickest way to compute many utterances of one network."""

from __future__ import annotations

import numpy as np

from nnet3tools.executor.batch_compute import (
    CHUNKS_TOGETHER,
    BatchComputer,
    ExactChunks,
    PaddedChunks,
)
from nnet3tools.executor.decodable_simple import SimpleNetwork
from nnet3tools.executor.local_compute import LocalComputer
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.graph.time_reach import is_local_in_time, looks_ahead_within
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet

__all__ = ["close_batches", "shared_computer"]


def shared_computer(
    nnet: Nnet,
    options: SimpleComputationOptions,
    priors: np.ndarray | None = None,
    *,
    like: Array | None = None,
) -> BatchComputer | LocalComputer:
    """What computes frames of several utterances together; outputs are those of one by one.

    Where rows depend on one another (Component.couples_rows) chunks of nnet3-compute stay alone.
    With BatchComputationOptions chunks are cut and padded as nnet3-compute-batch does it, else as
    nnet3-compute does; where outputs depend on their window only, that makes no difference.
    """
    options.check()
    alone = any(component.couples_rows for component in nnet.components)
    if not alone and is_local_in_time(nnet) and nnet.is_simple():
        return LocalComputer(nnet, options, priors, like=like)
    network = SimpleNetwork(nnet)
    if isinstance(options, BatchComputationOptions):
        factor = options.partial_minibatch_factor
        padded = PaddedChunks(options, network.context)
        return BatchComputer(network, options, padded, priors, like=like, partial_factor=factor)
    same_at_ends = options.extra_right_context_final in (-1, options.extra_right_context)
    may_lengthen = same_at_ends and looks_ahead_within(nnet, network.context)
    together = 1 if alone else CHUNKS_TOGETHER
    exact = ExactChunks(options, network.context, may_lengthen and not alone, together)
    return BatchComputer(network, options, exact, priors, like=like)


def close_batches(computer: BatchComputer | LocalComputer) -> None:
    """Log what was done in Kaldi's words for batches, and times if asked for."""
    log.log(f"Did {computer.num_tasks} tasks in {computer.num_minibatches} minibatches")
    computer.close()
