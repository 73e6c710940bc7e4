"""gmm-init-mono: make a tree without context and a model with equal Gaussians."""

from nnet3tools.cli.options import OptionGroup, option, program

USAGE = """Initialize monophone GMM.
Usage:  gmm-init-mono <topology-in> <dim> <model-out> <tree-out>
e.g.:
 gmm-init-mono topo 39 mono.mdl mono.tree
"""


class Options(OptionGroup):
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


@program("gmm-init-mono", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.cli.flat_start import dimension, load_topology, save_flat_start
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.lang.gaussians import Gaussian
    from nnet3tools.lang.trees import monophone_tree, read_shared_phones

    topology_in, dim_text, model_out, tree_out = args
    gaussian = Gaussian.unit(dimension(dim_text))
    if options.train_feats:
        with SequentialTableReader(options.train_feats, MATRIX) as reader:
            features = (matrix for _, matrix in reader)
            gaussian = Gaussian.of_features(features, dimension(dim_text))
    topology = load_topology(topology_in)
    tree = monophone_tree(read_shared_phones(options.shared_phones, topology), topology)
    gaussians = [gaussian] * tree.num_pdfs
    if options.perturb_factor:
        gaussians = [each.perturbed(options.perturb_factor) for each in gaussians]
    save_flat_start(tree, topology, gaussians, (model_out, tree_out), options.binary)
