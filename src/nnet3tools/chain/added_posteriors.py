"""Adds the outputs of a model to chain examples as targets, for learning without forgetting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.chain.den_graph import DenominatorGraph
from nnet3tools.chain.example import NnetChainExample
from nnet3tools.chain.minibatch import LWF_POSTERIORS, minibatch
from nnet3tools.chain.objective import denominator_posteriors
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.output_objective import ChainOutputObjective
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.arrays import Array
from nnet3tools.training.example import frames_io
from nnet3tools.training.running import ExampleRunner

_FRAME_STRIDE = 3
"""Kaldi numbers the rows 0, 3, 6, ..., whatever the frame subsampling is."""


@dataclass(frozen=True)
class AddedPosteriors:
    """Options: which posteriors are added to examples.

    They are the network's outputs (with `apply_exp` exp of these) or, with `of_denominator`,
    posteriors in the denominator graph. Values below `clip_threshold` become zero.
    """

    of_denominator: bool = False
    apply_exp: bool = True
    clip_threshold: float = 0.0


class PosteriorAdder:
    """Adds posteriors to each example, by a network on the device of the array `like`."""

    def __init__(
        self,
        nnet: Nnet,
        graph: DenominatorGraph,
        options: ChainTrainingOptions,
        added: AddedPosteriors,
        like: Array | None = None,
    ) -> None:
        self._graph, self._leak, self._added = graph, options.leaky_hmm_coefficient, added
        self._runner = ExampleRunner(
            nnet, like=like, objective=ChainOutputObjective(options, graph)
        )

    def add(self, example: NnetChainExample) -> NnetChainExample:
        """A copy of the example with the posteriors as an added input.

        DataError if the example does not have one output of one sequence, or cannot be computed.
        """
        if len(example.outputs) != 1 or example.outputs[0].name != "output":
            raise DataError("expected the example to have one output named 'output'")
        if example.outputs[0].supervision.num_sequences != 1:
            raise DataError(
                "expected one sequence: posteriors are added before examples are merged"
            )
        if any(io.name == LWF_POSTERIORS for io in example.inputs):
            raise DataError(f"the example has an input '{LWF_POSTERIORS}' already")
        computable = minibatch(example)
        computable.check_finite()
        computer = self._runner.forward(computable)
        rows = self._rows(np.array(tensor.to_host(computer.get_output("output"))))
        targets = frames_io(LWF_POSTERIORS, 0, rows, _FRAME_STRIDE)
        return replace(example, inputs=[*example.inputs, targets])

    def _rows(self, output: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self._added.of_denominator:
            return np.exp(output) if self._added.apply_exp else output
        log_prob, posteriors = denominator_posteriors(self._graph, output, self._leak)
        if posteriors is None:
            raise DataError(f"its denominator, of log-probability {log_prob:g}, does not add up")
        return np.where(np.abs(posteriors) < self._added.clip_threshold, np.float32(0), posteriors)
