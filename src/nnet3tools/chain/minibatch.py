"""Converts chain examples to the NnetExamples that trainers and diagnostics use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.general_matrix import check_finite, to_dense
from nnet3tools.io.holders import Holder
from nnet3tools.training.example import NnetExample, NnetIo

LWF_POSTERIORS = "__LWF-posteriors"
"""The input whose rows are not features, but targets for learning without forgetting."""


@dataclass(frozen=True)
class OutputSupervision:
    """The chain supervision of one output, and optional target `posteriors` (rows, pdfs)."""

    chain: NnetChainSupervision
    posteriors: NDArray[np.float32] | None = None

    def check_finite(self) -> None:
        """Raise NotFiniteError if a weight or posterior is NaN or infinite."""
        name, supervision = f"'{self.chain.name}'", self.chain.supervision
        check_finite(f"weight of {name}", np.array([supervision.weight], np.float32))
        check_finite(f"derivative weights of {name}", self.chain.deriv_weights)
        if self.posteriors is not None:
            check_finite(f"posteriors of {name}", self.posteriors)


def minibatch(example: NnetChainExample) -> NnetExample:
    """The NnetExample of a chain example; inputs whose names begin with __ are left out."""
    inputs = [io for io in example.inputs if not io.name.startswith("__")]
    targets = next((io for io in example.inputs if io.name == LWF_POSTERIORS), None)
    outputs = []
    for number, chain in enumerate(example.outputs):
        posteriors = _by_frame(targets, chain) if targets and number == 0 else None
        outputs.append(OutputSupervision(chain, posteriors))
    return NnetExample(inputs, supervisions=tuple(outputs))


def _by_frame(targets: NnetIo, chain: NnetChainSupervision) -> NDArray[np.float32]:
    """The rows of `targets`, reordered from sequence by sequence to frame by frame."""
    dense = to_dense(targets.features)
    shape = (chain.supervision.num_sequences, chain.supervision.frames_per_sequence, -1)
    if len(dense) != chain.supervision.num_frames:
        return dense  # the objective reports the error
    return np.ascontiguousarray(dense.reshape(shape).swapaxes(0, 1)).reshape(dense.shape)


CHAIN_MINIBATCH: Holder[NnetExample] = Holder(
    "a chain example", lambda reader: minibatch(NnetChainExample.read(reader))
)
"""The holder for reading tables of chain examples as NnetExamples."""
