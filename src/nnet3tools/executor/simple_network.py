"""Facts about a network with "input", perhaps "ivector", and "output", and its output's scaling."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.executor.chunks import Ivectors
from nnet3tools.graph.context import NnetContext, compute_simple_nnet_context
from nnet3tools.io.general_matrix import check_finite
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet

_subtract = tensor.element("_1 -= _2")


class SimpleNetwork:
    """A network with the inputs "input" and perhaps "ivector", and the output "output"."""

    def __init__(self, nnet: Nnet) -> None:
        """Store a network; DataError unless it has "output" and inputs "input" [, "ivector"]."""
        if not nnet.is_simple():
            raise DataError(
                "the network must have an output node 'output', and input nodes 'input' and "
                "perhaps 'ivector' only"
            )
        self.nnet = nnet
        self.input_dim = nnet.input_dim("input")
        self.ivector_dim = max(0, nnet.input_dim("ivector"))
        self.output_dim = nnet.output_dim("output")

    @cached_property
    def context(self) -> NnetContext:
        """Frames of input left and right that an output needs; UserError if not determinable."""
        return compute_simple_nnet_context(self.nnet)

    def check_inputs(self, features: np.ndarray, ivectors: Ivectors | None) -> None:
        """Raise DataError if a dimension differs from the network's, or a number is not finite."""
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


class OutputScaling:
    """Converts outputs to scaled log-likelihoods: (output - log(priors)) * acoustic scale."""

    def __init__(
        self, priors: np.ndarray | None, scale: float, output_dim: int, like: Array | None
    ) -> None:
        """Store the scale and log(priors); with `priors` None or empty, nothing is subtracted.

        `like` is any array of the device. DataError for a wrong number of priors, or a prior <= 0.
        """
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
        """Set `output` (rows, dim) in place to (output - log(priors)) * acoustic scale."""
        if self._log_priors is not None:
            _subtract(output, self._log_priors)
        if self._scale != 1.0:
            tensor.scale(output, self._scale)
