"""What a chain example will be, but for its supervision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.chain.supervision import Supervision
from nnet3tools.io.general_matrix import GeneralMatrix, row_range
from nnet3tools.training.example import NnetIo, frames_io

__all__ = ["ExamplePlan"]


@dataclass(frozen=True, eq=False)
class ExamplePlan:
    """Rows of an utterance's features, an i-vector perhaps, and derivative weights."""

    features: GeneralMatrix
    first_row: int
    """Less than 0 where the first row is to be repeated."""
    num_rows: int
    left_context: int
    """How many of the rows come before the first frame of the output."""
    ivector: NnetIo | None
    factor: int
    """The frame subsampling factor."""
    deriv_weights: NDArray[np.float32]
    """One for each frame of the output."""

    def example(self, supervision: Supervision, compress: bool) -> NnetChainExample:
        """The example with this supervision."""
        rows = row_range(self.features, self.first_row, self.num_rows)
        inputs = [frames_io("input", -self.left_context, rows)]
        if self.ivector is not None:
            inputs.append(self.ivector)
        indexes = output_indexes(1, len(self.deriv_weights), 0, self.factor)
        output = NnetChainSupervision("output", indexes, supervision, self.deriv_weights)
        example = NnetChainExample(inputs, [output])
        return example.compressed() if compress else example
