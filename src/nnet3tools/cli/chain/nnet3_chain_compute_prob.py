"""nnet3-chain-compute-prob: compute the LF-MMI objective of a model on examples."""

from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.cli.judging import JudgingOptions
from nnet3tools.cli.options import OptionGroup, option_group, program
from nnet3tools.errors import EmptyError
from nnet3tools.training.diagnostics_options import ComputeProbOptions

USAGE = """Computes and prints to in logging messages the average log-prob per frame of
the given data with an nnet3+chain neural net.  The input of this is the output of
e.g. nnet3-chain-get-egs | nnet3-chain-merge-egs.

Usage:  nnet3-chain-compute-prob [options] <raw-nnet3-model-in> <denominator-fst> <training-examples-in>
e.g.: nnet3-chain-compute-prob 0.mdl den.fst ark:valid.egs
"""  # noqa: E501


class Options(OptionGroup):
    judging: JudgingOptions = option_group("", JudgingOptions)
    prob: ComputeProbOptions = option_group("", ComputeProbOptions)
    chain: ChainTrainingOptions = option_group("", ChainTrainingOptions)


@program("nnet3-chain-compute-prob", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.chain.diagnostics import ChainComputeProb
    from nnet3tools.chain.minibatch import CHAIN_MINIBATCH
    from nnet3tools.chain.output_objective import den_graph_of
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.training.example import for_each_of_kind

    model_in, den_fst, examples = args
    options.chain.check()
    device = options.judging.device.choose()
    nnet = read_nnet(model_in)
    options.judging.set_test_modes(nnet)
    graph = den_graph_of(den_fst, nnet, model_in)
    prob = ChainComputeProb(options.prob, options.chain, graph, nnet, like=device)
    if not for_each_of_kind(
        CHAIN_MINIBATCH, examples, lambda key, example: prob.compute(example), prob.ahead
    ):
        raise EmptyError(f"{examples}: no examples")
    return 0 if prob.print_total_stats() else 1
