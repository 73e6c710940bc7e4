"""Acoustic models (.mdl files): a transition model, a network, its context and priors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io import log
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.stored import StoredObject


@dataclass
class AmNnet(StoredObject):
    """An acoustic model as in Kaldi's final.mdl: transition model, network, contexts and priors.

    The contexts are in frames: stored in the file, or computed by the caller with graph/context.py.
    (Kaldi recomputes them after each change of the network.) `priors` (pdfs,) may be empty.
    """

    transition_model: TransitionModel
    nnet: Nnet
    left_context: int = 0
    right_context: int = 0
    priors: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))

    @classmethod
    def read(cls, reader: Reader) -> AmNnet:
        """Read a model in Kaldi's format; DataError if its network is not an acoustic model's."""
        transition_model = TransitionModel.read(reader)
        nnet = Nnet.read(reader)
        left_context = reader.expect_token("<LeftContext>").read_int32()
        right_context = reader.expect_token("<RightContext>").read_int32()
        reader.expect_token("<Priors>")
        model = cls(transition_model, nnet, left_context, right_context, reader.read_vector())
        model.check_simple(reader.name)
        return model

    def write(self, writer: Writer) -> None:
        """Write the model in Kaldi's format."""
        self.transition_model.write(writer)
        self.nnet.write(writer)
        writer.write_token("<LeftContext>").write_int32(self.left_context)
        writer.write_token("<RightContext>").write_int32(self.right_context)
        writer.write_token("<Priors>").write_vector(self.priors)

    def check_simple(self, name: str) -> None:
        """Raise DataError, with the file's `name`, unless the nodes "input" and "output" exist.

        Other inputs than "ivector" are also errors.
        """
        if not self.nnet.is_simple():
            raise DataError(
                f"{name}: the network of an acoustic model must have a node 'output', and input "
                "nodes 'input' and perhaps 'ivector'"
            )

    def set_nnet(self, nnet: Nnet) -> None:
        """Replace the network; priors of another dimension are dropped."""
        self.nnet = nnet
        self.check_simple("the new network")
        dim = nnet.output_dim("output")
        if len(self.priors) not in (0, dim):
            log.warning(
                "Removing priors since there is a dimension mismatch after changing the nnet: "
                f"{len(self.priors)} vs. {dim}"
            )
            self.priors = np.empty(0, np.float32)

    def set_priors(self, priors: NDArray[np.float32]) -> None:
        """Set the priors; DataError if their number is not the output dimension."""
        dim = self.nnet.output_dim("output")
        if len(priors) not in (0, dim):
            raise DataError(f"there are {len(priors)} priors, but the output has dimension {dim}")
        self.priors = priors

    def info(self) -> str:
        """The text that nnet3-am-info prints before the network: contexts, pdfs and priors."""
        lines = [
            f"input-dim: {self.nnet.input_dim('input')}",
            f"ivector-dim: {self.nnet.input_dim('ivector')}",
            f"num-pdfs: {self.nnet.output_dim('output')}",
            f"prior-dimension: {len(self.priors)}",
        ]
        if len(self.priors):
            lines.append(f"prior-sum: {float(self.priors.sum()):g}")
            lines.append(f"prior-min: {float(self.priors.min()):g}")
            lines.append(f"prior-max: {float(self.priors.max()):g}")
        return "".join(f"{line}\n" for line in [*lines, "# Nnet info follows."])
