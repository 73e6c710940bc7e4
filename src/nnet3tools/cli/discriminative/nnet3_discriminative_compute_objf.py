"""nnet3-discriminative-compute-objf: a discriminative objective of a model on examples."""

from nnet3tools.cli.judging import JudgingOptions
from nnet3tools.cli.options import OptionGroup, option_group, program
from nnet3tools.discriminative.options import DiscriminativeOptions
from nnet3tools.errors import EmptyError
from nnet3tools.training.diagnostics_options import ComputeProbOptions

USAGE = """Computes and prints to in logging messages the objective function per frame of
the given data with an nnet3 neural net.  The input of this is the output of
e.g. nnet3-discriminative-get-egs | nnet3-discriminative-merge-egs.

Usage:  nnet3-discriminative-compute-objf [options] <nnet3-model-in> <training-examples-in>
e.g.: nnet3-discriminative-compute-objf 0.mdl ark:valid.degs
"""


class Options(OptionGroup):
    judging: JudgingOptions = option_group("", JudgingOptions)
    prob: ComputeProbOptions = option_group("", ComputeProbOptions)
    discriminative: DiscriminativeOptions = option_group("", DiscriminativeOptions)


@program("nnet3-discriminative-compute-objf", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.discriminative.diagnostics import DiscriminativeComputeObjf
    from nnet3tools.discriminative.example import DISCRIMINATIVE_MINIBATCH
    from nnet3tools.nnet.am_nnet import AmNnet
    from nnet3tools.training.example import for_each_of_kind

    model_in, examples = args
    options.discriminative.check()
    device = options.judging.device.choose()
    model = AmNnet.load(model_in)
    options.judging.set_test_modes(model.nnet)
    objf = DiscriminativeComputeObjf(options.prob, options.discriminative, model, like=device)
    if not for_each_of_kind(
        DISCRIMINATIVE_MINIBATCH, examples, lambda key, example: objf.compute(example), objf.ahead
    ):
        raise EmptyError(f"{examples}: no examples")
    return 0 if objf.print_total_stats() else 1
