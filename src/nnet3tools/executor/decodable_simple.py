"""A network's outputs for a whole utterance, chunk by chunk (Kaldi's DecodableNnetSimple)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.executor.chunk_computers import ChunkComputers, fill_rows
from nnet3tools.executor.chunks import Chunk, chunks_of_utterance, input_rows, ivector_frame
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.finite_watch import FiniteWatch
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.graph.context import NnetContext, compute_simple_nnet_context
from nnet3tools.io.general_matrix import check_finite
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler

__all__ = ["Ivectors", "OneByOne", "OutputScaling", "SimpleNetwork", "UtteranceComputer"]

_IVECTOR_TOLERANCE = 50
"""Frames that online i-vectors may be missing at the end: half a second is no edge effect."""

_subtract = tensor.element("_1 -= _2")


class SimpleNetwork:
    """The facts that chunking needs of a network with "input", perhaps "ivector", and "output"."""

    def __init__(self, nnet: Nnet) -> None:
        if not nnet.is_simple():
            raise DataError(
                "the network must have an output node 'output', and input nodes 'input' and "
                "perhaps 'ivector' only"
            )
        self.nnet = nnet
        self.context: NnetContext = compute_simple_nnet_context(nnet)
        self.input_dim = nnet.input_dim("input")
        self.ivector_dim = max(0, nnet.input_dim("ivector"))
        self.output_dim = nnet.output_dim("output")

    def check_inputs(self, features: np.ndarray, ivectors: Ivectors | None) -> None:
        """DataError for dimensions that do not fit and for numbers that are not finite."""
        if features.shape[1] != self.input_dim:
            raise DataError(
                f"the network expects 'input' features with dimension {self.input_dim}, "
                f"found {features.shape[1]}"
            )
        dim = 0 if ivectors is None else ivectors.dim
        if dim != self.ivector_dim:
            found = f"found dimension {dim}" if dim else "but none are given"
            if self.ivector_dim:
                raise DataError(
                    f"the network expects 'ivector' features with dimension {self.ivector_dim}, "
                    f"{found}"
                )
            raise DataError(f"i-vectors (dimension {dim}) are given, but the network takes none")
        check_finite("features", features)
        if ivectors is not None:
            check_finite("i-vectors", ivectors.rows)


class Ivectors:
    """One i-vector for a whole utterance, or one for each `period` frames of it."""

    def __init__(self, rows: np.ndarray, period: int = 0) -> None:
        """A vector, or (with `period` > 0) a matrix of online i-vectors."""
        if rows.size == 0:
            raise DataError("expected i-vectors, found an empty matrix or vector")
        self.rows = rows.reshape(-1, rows.shape[-1])
        self.period = period

    @property
    def dim(self) -> int:
        """Dimension of an i-vector."""
        return int(self.rows.shape[1])

    def of_chunk(self, chunk: Chunk, tolerance: int = _IVECTOR_TOLERANCE) -> np.ndarray:
        """The chunk's i-vector, (1, dim)."""
        row = 0
        if self.period > 0:
            row = ivector_frame(chunk, len(self.rows), self.period, tolerance)
        return self.rows[row : row + 1]


class OutputScaling:
    """The treatment of outputs: minus the logs of priors, times the acoustic scale."""

    def __init__(
        self, priors: np.ndarray | None, scale: float, output_dim: int, like: Array | None
    ) -> None:
        """`priors` may be None or empty. DataError if they do not fit the output."""
        self._log_priors: Array | None = None
        self._scale = scale
        if priors is not None and len(priors):
            if len(priors) != output_dim:
                raise DataError(
                    f"there are {len(priors)} priors, but the output has dimension {output_dim}"
                )
            if not (priors > 0).all():
                raise DataError("a prior of the model is not positive: it has no logarithm")
            self._log_priors = tensor.asarray(np.log(priors.astype(np.float32)), like=like)

    def apply(self, output: Array) -> None:
        """Change outputs (rows, dim) in place."""
        if self._log_priors is not None:
            _subtract(output, self._log_priors)
        if self._scale != 1.0:
            tensor.scale(output, self._scale)


class OneByOne(ABC):
    """Computes each utterance when it comes, for those who hand over many and take some back."""

    def __init__(self) -> None:
        self._done: list[tuple[str, np.ndarray]] = []

    @abstractmethod
    def compute(self, features: np.ndarray, ivectors: Ivectors | None = None) -> np.ndarray:
        """Output rows (after subsampling) x dimension, for features of at least one frame."""

    def accept(
        self,
        key: str,
        features: np.ndarray,
        ivectors: Ivectors | None = None,
        held_bytes: int = 0,
    ) -> None:
        """Compute an utterance; `ready` gives its output."""
        self._done.append((key, self.compute(features, ivectors)))

    def ready(self) -> Iterator[tuple[str, np.ndarray]]:
        """(key, output) of what was accepted since the last call."""
        while self._done:
            yield self._done.pop(0)

    def finish(self) -> None:  # noqa: B027 (this kind of computer has nothing to do)
        """Compute what waits for company: here nothing does."""


class UtteranceComputer(OneByOne):
    """Computes utterance after utterance with programs that are compiled and lowered once.

    The network should be prepared for test by the caller.
    """

    def __init__(
        self,
        nnet: Nnet,
        options: SimpleComputationOptions,
        priors: np.ndarray | None = None,
        *,
        like: Array | None = None,
        compiler: CachingOptimizingCompiler | None = None,
    ) -> None:
        """`like` is any array of the device to run on.

        OptionError, DataError or another UserError for what cannot be computed at all.
        """
        super().__init__()
        self.options = options
        options.check()
        self.network = SimpleNetwork(nnet)
        self._outputs_per_chunk = options.outputs_per_chunk(self.network.context.modulus)
        self._computers = ChunkComputers(nnet, options, like, compiler)
        self._scaling = OutputScaling(priors, options.acoustic_scale, self.network.output_dim, like)
        self._watch = FiniteWatch()
        self._like = like

    @property
    def compiler(self) -> CachingOptimizingCompiler:
        """Whose cache holds the programs."""
        return self._computers.compiler

    def compute(self, features: np.ndarray, ivectors: Ivectors | None = None) -> np.ndarray:
        """Output rows (after subsampling) x dimension, for features of at least one frame.

        DataError for inputs that do not fit.
        """
        self.network.check_inputs(features, ivectors)
        chunks = chunks_of_utterance(
            len(features),
            self._outputs_per_chunk,
            self.network.context,
            self.options,
            ivectors is not None,
        )
        num_outputs = chunks[-1].first_output + chunks[-1].num_used
        output = tensor.empty((num_outputs, self.network.output_dim), like=self._like)
        device_features = tensor.asarray(features, like=self._like)
        for chunk in chunks:
            run = partial(self._run, chunk, device_features, ivectors)
            computer = run()
            found = computer.get_output("output")
            self._watch.look("'output'", found, computer, run)
            tensor.copy(output[chunk.first_output : chunk.first_output + chunk.num_used], found)
        self._scaling.apply(output)
        return tensor.to_host(output)

    def _run(self, chunk: Chunk, features: Array, ivectors: Ivectors | None) -> NnetComputer:
        """The computer that has computed a chunk."""
        computer = self._computers.computer(chunk.shape)
        rows = input_rows(chunk, len(features))
        fill_rows(computer.input_buffer("input"), features, rows)
        if ivectors is not None:
            computer.accept_input("ivector", ivectors.of_chunk(chunk))
        computer.run()
        return computer

    def close(self) -> None:
        """Log times, if asked for."""
        self._computers.close()
