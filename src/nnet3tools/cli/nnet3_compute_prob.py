"""nnet3-compute-prob: objective and accuracy of a model on examples."""

from nnet3tools.cli.judging import JudgingOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.cli.program_cache import ProgramCacheOptions
from nnet3tools.errors import EmptyError
from nnet3tools.training.diagnostics_options import ComputeProbOptions

USAGE = """Computes and prints in logging messages the average log-prob per frame of
the given data with an nnet3 neural net.  The input of this is the output of
e.g. nnet3-get-egs | nnet3-merge-egs.

Usage:  nnet3-compute-prob [options] <raw-model-in> <training-examples-in>

e.g.: nnet3-compute-prob 0.raw ark:valid.egs
"""


class Options(OptionGroup):
    judging: JudgingOptions = option_group("", JudgingOptions)
    collapse_model: bool = option(
        True, "If true, collapse model to the extent possible before using it (for efficiency)."
    )
    cache: ProgramCacheOptions = option_group("", ProgramCacheOptions)
    prob: ComputeProbOptions = option_group("", ComputeProbOptions)


@program("nnet3-compute-prob", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.nnet.collapse import collapse_model
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
    from nnet3tools.training.diagnostics import NnetComputeProb
    from nnet3tools.training.example import for_each_example

    options.cache.check()
    device = options.judging.device.choose()
    nnet = read_nnet(args[0])
    options.judging.set_test_modes(nnet)
    if options.collapse_model:
        collapse_model(nnet)
    compiler = CachingOptimizingCompiler(nnet, options.prob.optimization, options.prob.compiler)
    options.cache.read(compiler)
    prob = NnetComputeProb(options.prob, nnet, like=device, compiler=compiler)
    if for_each_example(args[1], lambda key, example: prob.compute(example), prob.ahead) == 0:
        raise EmptyError(f"{args[1]}: no examples")
    options.cache.write(compiler)
    return 0 if prob.print_total_stats() else 1
