"""Functions shared by gmm-init-mono and gmm-init-biphone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnet3tools.lang.gaussians import Gaussian
    from nnet3tools.nnet.hmm.topology import HmmTopology
    from nnet3tools.nnet.hmm.tree import ContextDependency

_LARGEST = 10_000


def dimension(text: str) -> int:
    """The dimension of the Gaussians as a number; OptionError unless it is 1 to 10000."""
    if not text.isdecimal() or not 0 < int(text) <= _LARGEST:
        raise OptionError(f"Bad dimension:{text}. It should be a positive integer.")
    return int(text)


def load_topology(rxfilename: str) -> HmmTopology:
    """The HMM topology in a file or pipe."""
    from nnet3tools.io.files import open_input
    from nnet3tools.nnet.hmm.topology import HmmTopology

    with open_input(rxfilename) as reader:
        return HmmTopology.read(reader)


def save_flat_start(
    tree: ContextDependency,
    topology: HmmTopology,
    gaussians: Sequence[Gaussian],
    names: tuple[str, str],
    binary: bool,
) -> None:
    """Write a model with the given Gaussian per pdf, and the tree.

    `names` are the wxfilenames of the model and the tree.
    """
    from nnet3tools.io.files import open_output
    from nnet3tools.lang.gaussians import write_gaussians
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model = TransitionModel.from_tree(tree, topology)
    model_out, tree_out = names
    with open_output(model_out, binary) as writer:
        model.write(writer)
        write_gaussians(writer, gaussians)
    with open_output(tree_out, binary) as writer:
        tree.write(writer)
