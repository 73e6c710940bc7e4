"""gmm-init-biphone: make a tree of left biphones and a model with equal Gaussians."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log
from nnet3tools.options import colon_list

USAGE = """Initialize a biphone context-dependency tree with all the
leaves (i.e. a full tree). Intended for end-to-end tree-free models.
Usage:  gmm-init-biphone <topology-in> <dim> <model-out> <tree-out>
e.g.:
 gmm-init-biphone topo 39 bi.mdl bi.tree
"""


class Options(OptionGroup):
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


@program("gmm-init-biphone", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.cli.flat_start import dimension, load_topology, save_flat_start
    from nnet3tools.lang.gaussians import Gaussian
    from nnet3tools.lang.trees import PhoneCounts, biphone_tree, read_shared_phones

    topology_in, dim_text, model_out, tree_out = args
    gaussian = Gaussian.unit(dimension(dim_text))
    topology = load_topology(topology_in)
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
    save_flat_start(
        tree, topology, [gaussian] * tree.num_pdfs, (model_out, tree_out), options.binary
    )
