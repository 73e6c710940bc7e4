"""Programs for chunks: compiled and lowered once for each shape, all in one arena."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from nnet3tools import tensor
from nnet3tools.executor.binding import Arena
from nnet3tools.executor.chunks import ChunkShape
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler


class ChunkPrograms:
    """NnetComputers (programs bound to memory) by the shape of chunk, compiled at its first use.

    `like` is any array of the device. The compiler's cache size limits the number that is kept.
    """

    def __init__(
        self, nnet: Nnet, options: SimpleComputationOptions, like: Array | None = None
    ) -> None:
        self.nnet = nnet
        self.compiler = CachingOptimizingCompiler(nnet, options.optimization, options.compiler)
        debug = options.computation.debug or options.debug_computation
        self._options = replace(options.computation, debug=debug)
        self._like = like
        self._arena = Arena(like)
        self._computers: OrderedDict[ChunkShape, NnetComputer] = OrderedDict()

    def computer(self, shape: ChunkShape) -> NnetComputer:
        """The NnetComputer for chunks of this shape, reset to its first command.

        All computers share their memory: read the outputs of one before asking for the next.
        """
        if (computer := self._computers.get(shape)) is not None:
            self._computers.move_to_end(shape)
            computer.reset()
            return computer
        program = self.compiler.compile(shape.request())
        moves = self._arena.moves
        computer = NnetComputer(
            self._options, program, self.nnet, arena=self._arena, like=self._like
        )
        # If the arena has moved, programs that were bound before would keep the old memory alive.
        most = max(1, self.compiler.options.cache_capacity) if self._arena.moves == moves else 1
        self._computers[shape] = computer
        while len(self._computers) > most:
            self._report(*self._computers.popitem(last=False))
        return computer

    def close(self) -> None:
        """Log the time of compilation and, with --computation.profile, the time of each command."""
        self.compiler.log_time()
        while self._computers:
            self._report(*self._computers.popitem(last=False))

    def _report(self, shape: ChunkShape, computer: NnetComputer) -> None:
        if self._options.profile and (report := computer.time_report()):
            frames = f"{shape.num_inputs} frames in, {shape.num_outputs} out"
            log.log(f"time of commands, {shape.num_sequences} x {frames}:\n{report}")


def fill_rows(buffer: Array, features: Array, rows: slice | np.ndarray) -> None:
    """Copy `rows` of `features` (a slice, or row numbers) to `buffer`, a program's input."""
    if isinstance(rows, slice):
        tensor.copy(buffer, features[rows])
    else:
        tensor.copy_rows(buffer, features, rows)
