"""nnet3-am-init: combine a transition model and a network into an acoustic model."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log

USAGE = """Initialize a nnet3 acoustic model (a neural network with its transition model) from a
tree and a topology, or an existing transition model, and a network.
Priors are not set.

Usage:  nnet3-am-init [options] <tree-in> <topology-in> <input-raw-nnet> <output-am-nnet>
  or:  nnet3-am-init [options] <trans-model-in> <input-raw-nnet> <output-am-nnet>
e.g.:
 nnet3-am-init tree topo 0.raw 0.mdl
See also: nnet3-init, nnet3-am-copy, nnet3-am-info, nnet3-am-adjust-priors
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")


@program("nnet3-am-init", USAGE, Options, num_args=(3, 4))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.cli.am_models import set_context
    from nnet3tools.io.files import open_input
    from nnet3tools.nnet.am_nnet import AmNnet
    from nnet3tools.nnet.hmm.topology import HmmTopology
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.nnet.hmm.tree import ContextDependency
    from nnet3tools.nnet.model_file import read_nnet

    *sources, nnet_in, model_out = args
    if len(sources) == 2:
        tree = ContextDependency.load(sources[0])
        with open_input(sources[1]) as reader:
            topology = HmmTopology.read(reader)
        transition_model = TransitionModel.from_tree(tree, topology)
    else:
        transition_model = TransitionModel.load(sources[0])
    model = AmNnet(transition_model, read_nnet(nnet_in))
    set_context(model)
    model.save(model_out, options.binary)
    log.log(f"Initialized am-nnet (neural net acoustic model) and wrote to {model_out}")
