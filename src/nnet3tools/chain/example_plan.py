"""The plan of a chain example: everything but its supervision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.chain.supervision import Supervision
from nnet3tools.io.general_matrix import GeneralMatrix, row_range
from nnet3tools.training.example import NnetIo, frames_io


@dataclass(frozen=True, eq=False)
class ExamplePlan:
    """The input rows, the optional i-vector and the derivative weights of a chain example."""

    features: GeneralMatrix
    first_row: int
    """The first row of the utterance; if it is negative, row 0 is repeated."""
    num_rows: int
    left_context: int
    """The number of rows before the first frame of the output."""
    ivector: NnetIo | None
    factor: int
    """The frame subsampling factor."""
    deriv_weights: NDArray[np.float32]
    """One weight per frame of the output."""

    def example(self, supervision: Supervision, compress: bool) -> NnetChainExample:
        """The chain example of this plan with a supervision; with `compress`, compressed inputs."""
        rows = row_range(self.features, self.first_row, self.num_rows)
        inputs = [frames_io("input", -self.left_context, rows)]
        if self.ivector is not None:
            inputs.append(self.ivector)
        indexes = output_indexes(1, len(self.deriv_weights), 0, self.factor)
        output = NnetChainSupervision("output", indexes, supervision, self.deriv_weights)
        example = NnetChainExample(inputs, [output])
        return example.compressed() if compress else example
