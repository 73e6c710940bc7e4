"""One vector for an utterance: the output at t = 0 of a network that pools over all its input.

As Kaldi's nnet3-xvector-compute: of the whole utterance, or the mean over chunks of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, OptionError, check_num_frames
from nnet3tools.executor.chunk_computers import ChunkComputers, fill_rows
from nnet3tools.executor.chunks import ChunkShape
from nnet3tools.executor.finite_watch import FiniteWatch
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.io import log
from nnet3tools.io.general_matrix import check_finite
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler

__all__ = ["XvectorComputer", "XvectorOptions"]


@dataclass(frozen=True)
class XvectorOptions:
    """How long the pieces are that vectors are computed of; frames."""

    chunk_size: int = -1
    """-1: the whole utterance."""
    min_chunk_size: int = 100
    pad_input: bool = True
    """Repeat the first and last frame of shorter pieces; without it they are left out."""

    def check(self) -> None:
        """OptionError for lengths that no piece can have."""
        if self.chunk_size != -1 and self.chunk_size < 1:
            raise OptionError("--chunk-size must be > 0, or -1 for whole utterances")
        if self.pad_input:
            check_num_frames("min-chunk-size", self.min_chunk_size)


class XvectorComputer:
    """Computes vectors with programs that are compiled and lowered once for each length."""

    def __init__(
        self,
        nnet: Nnet,
        options: SimpleComputationOptions,
        xvector_options: XvectorOptions,
        *,
        like: Array | None = None,
        compiler: CachingOptimizingCompiler | None = None,
    ) -> None:
        """`like` is any array of the device to run on; DataError for an unsuitable network."""
        if not nnet.is_simple() or nnet.input_dim("ivector") > 0:
            raise DataError("the network must have one input 'input' and an output 'output'")
        self.options = xvector_options
        self._input_dim = nnet.input_dim("input")
        self._output_dim = nnet.output_dim("output")
        self._computers = ChunkComputers(nnet, options, like, compiler)
        self._watch = FiniteWatch()
        self._like = like

    def compute(self, features: np.ndarray) -> np.ndarray:
        """The vector, (dim,). DataError for features that do not fit or are too short."""
        if features.shape[1] != self._input_dim:
            raise DataError(
                f"the network expects 'input' features with dimension {self._input_dim}, "
                f"found {features.shape[1]}"
            )
        check_finite("features", features)
        num_frames, shortest = len(features), self.options.min_chunk_size
        size = num_frames if self.options.chunk_size == -1 else self.options.chunk_size
        if num_frames < size:
            log.log(f"Using a chunk size of {num_frames}, the number of frames, instead of {size}")
            size = num_frames
        device_features = tensor.asarray(features, like=self._like)
        total = tensor.zeros((1, self._output_dim), like=self._like)
        weight = 0
        for first in range(0, num_frames, size):
            count = min(size, num_frames - first)
            if count < shortest and not self.options.pad_input:
                continue
            rows = _padded_rows(first, count, max(count, shortest))
            tensor.add(total, self._output_of(device_features, rows), float(count))
            weight += count
        if weight == 0:
            raise DataError(f"no piece has the minimum chunk size of {shortest} frames")
        tensor.scale(total, 1.0 / weight)
        return tensor.to_host(total)[0]

    @property
    def compiler(self) -> CachingOptimizingCompiler:
        """Whose cache holds the programs."""
        return self._computers.compiler

    def _output_of(self, features: Array, rows: slice | np.ndarray) -> Array:
        num_rows = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        computer = self._computers.computer(ChunkShape(0, num_rows, 1, 1))

        def run() -> None:
            computer.reset()
            fill_rows(computer.input_buffer("input"), features, rows)
            computer.run()

        run()
        self._watch.look("'output'", computer.get_output("output"), computer, run)
        return computer.get_output("output")

    def close(self) -> None:
        """Log times, if asked for."""
        self._computers.close()


def _padded_rows(first: int, count: int, padded: int) -> slice | np.ndarray:
    """Rows of a piece in the middle of `padded` ones, the outer ones repeated."""
    if count == padded:
        return slice(first, first + count)
    left = (padded - count) // 2
    return np.clip(
        np.arange(first - left, first - left + padded, dtype=np.int32), first, first + count - 1
    )
