"""Programs that make a tree and a model with equal Gaussians."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.number_text import parse_int
from nnet3tools.options import colon_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnet3tools.lang.gaussians import Gaussian
    from nnet3tools.nnet.hmm.topology import HmmTopology
    from nnet3tools.nnet.hmm.tree import ContextDependency

_LARGEST = 10_000


def _dimension(text: str) -> int:
    """The dimension of the Gaussians as a number; OptionError unless it is 1 to 10000."""
    if (dim := parse_int(text, 1, _LARGEST)) is None:
        raise OptionError(f"Bad dimension:{text[:80]}. It should be a positive integer.")
    return dim


def _save(
    tree: ContextDependency,
    topology: HmmTopology,
    gaussians: Sequence[Gaussian],
    names: list[str],
    binary: bool,
) -> None:
    """Write the model, with gaussians[pdf] for each pdf, to names[0], and the tree to names[1]."""
    from nnet3tools.io.files import open_output
    from nnet3tools.lang.gaussians import write_gaussians
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model = TransitionModel.from_tree(tree, topology)
    model_out, tree_out = names
    with open_output(model_out, binary) as writer:
        model.write(writer)
        write_gaussians(writer, gaussians)
    tree.save(tree_out, binary)


GMM_INIT_MONO_USAGE = """Initialize monophone GMM.
Usage:  gmm-init-mono <topology-in> <dim> <model-out> <tree-out>
e.g.:
 gmm-init-mono topo 39 mono.mdl mono.tree
"""


class GmmInitMonoOptions(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    train_feats: str = option(
        "", "rspecifier for training features [used to set mean and variance]"
    )
    shared_phones: str = option(
        "", "rxfilename containing, on each line, a list of phones whose pdfs should be shared."
    )
    perturb_factor: float = option(
        0.0, "Perturb the means using this fraction of standard deviation."
    )


@program("gmm-init-mono", GMM_INIT_MONO_USAGE, GmmInitMonoOptions, num_args=4)
def gmm_init_mono(options: GmmInitMonoOptions, args: list[str]) -> None:
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.lang.gaussians import Gaussian
    from nnet3tools.lang.trees import monophone_tree, read_shared_phones
    from nnet3tools.nnet.hmm.topology import HmmTopology

    topology_in, dim_text, *names = args
    gaussian = Gaussian.unit(_dimension(dim_text))
    if options.train_feats:
        with SequentialTableReader(options.train_feats, MATRIX) as reader:
            features = (matrix for _, matrix in reader)
            gaussian = Gaussian.of_features(features, _dimension(dim_text))
    topology = HmmTopology.load(topology_in)
    tree = monophone_tree(read_shared_phones(options.shared_phones, topology), topology)
    gaussians = [gaussian] * tree.num_pdfs
    if options.perturb_factor:
        gaussians = [each.perturbed(options.perturb_factor) for each in gaussians]
    _save(tree, topology, gaussians, names, options.binary)


GMM_INIT_BIPHONE_USAGE = """Initialize a biphone context-dependency tree with all the
leaves (i.e. a full tree). Intended for end-to-end tree-free models.
Usage:  gmm-init-biphone <topology-in> <dim> <model-out> <tree-out>
e.g.:
 gmm-init-biphone topo 39 bi.mdl bi.tree
"""


class GmmInitBiphoneOptions(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    shared_phones: str = option(
        "", "rxfilename containing, on each line, a list of phones whose pdfs should be shared."
    )
    ci_phones: str = option(
        "", "Colon-separated list of integer indices of context-independent phones."
    )
    phone_counts: str = option(
        "",
        "rxfilename containing, on each line, a biphone/phone and its count in the training data.",
    )
    min_biphone_count: int = option(
        100, "Minimum number of occurrences of a biphone in training data to reserve pdfs for it."
    )
    min_monophone_count: int = option(
        20, "Minimum number of occurrences of a monophone in training data to reserve pdfs for it."
    )


@program("gmm-init-biphone", GMM_INIT_BIPHONE_USAGE, GmmInitBiphoneOptions, num_args=4)
def gmm_init_biphone(options: GmmInitBiphoneOptions, args: list[str]) -> None:
    from nnet3tools.lang.gaussians import Gaussian
    from nnet3tools.lang.trees import PhoneCounts, biphone_tree, read_shared_phones
    from nnet3tools.nnet.hmm.topology import HmmTopology

    topology_in, dim_text, *names = args
    gaussian = Gaussian.unit(_dimension(dim_text))
    topology = HmmTopology.load(topology_in)
    counts = None
    if options.phone_counts:
        counts = PhoneCounts.load(options.phone_counts)
        log.log("Loaded mono/bi phone counts.")
    tree = biphone_tree(
        read_shared_phones(options.shared_phones, topology),
        topology,
        colon_list(options.ci_phones, "--ci-phones"),
        counts,
        options.min_biphone_count,
        options.min_monophone_count,
    )
    _save(tree, topology, [gaussian] * tree.num_pdfs, names, options.binary)
