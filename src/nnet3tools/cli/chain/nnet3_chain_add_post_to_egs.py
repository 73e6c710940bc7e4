"""nnet3-chain-add-post-to-egs: a model's outputs become targets of chain examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.cli.device_options import CudaAllocatorOptions, CudaDeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import EmptyError, OptionError
from nnet3tools.io import log
from nnet3tools.training.trainer import NnetTrainerOptions

if TYPE_CHECKING:
    from nnet3tools.chain.example import NnetChainExample

USAGE = """This program reads nnet3+chain examples, computes a network's outputs for them, and adds
these, or their posteriors in the denominator FST, to the examples as an input named
'__LWF-posteriors': what a model that goes on learning is to remember (learning without
forgetting, --lwf-scale and --lwf-den-scale of nnet3-chain-train).

Usage:  nnet3-chain-add-post-to-egs [options] <raw-nnet-in> <denominator-fst> <egs-rspecifier> <egs-wspecifier>
e.g.:
 nnet3-chain-add-post-to-egs --type=den 0.raw den.fst ark:1.cegs ark:with_post.cegs
"""  # noqa: E501


class Options(OptionGroup):
    device: CudaDeviceOptions = option_group("", CudaDeviceOptions)
    type: str = option("raw", "raw|den, what type of posts to append.")
    clip_threshold: float = option(0.0, "Threshold to clip posterior values")
    apply_exp: bool = option(True, "Apply exp to the posteriors.")
    batchnorm_test_mode: bool = option(
        False, "If true, set test-mode to true on any BatchNormComponents."
    )
    dropout_test_mode: bool = option(
        False, "If true, set test-mode to true on any DropoutComponents and DropoutMaskComponents."
    )
    memory: CudaAllocatorOptions = option_group("", CudaAllocatorOptions)
    trainer: NnetTrainerOptions = option_group("", NnetTrainerOptions)
    chain: ChainTrainingOptions = option_group("", ChainTrainingOptions)
    apply_deriv_weights: bool = option(True, "Ignored here: nothing is trained")


@program("nnet3-chain-add-post-to-egs", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.chain.added_posteriors import AddedPosteriors, PosteriorAdder
    from nnet3tools.chain.example import CHAIN_EXAMPLE
    from nnet3tools.chain.output_objective import den_graph_of
    from nnet3tools.io.table import TableWriter
    from nnet3tools.nnet.arithmetic import set_test_modes
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.training.example import for_each_of_kind

    model_in, den_fst, examples_in, examples_out = args
    if options.type not in ("raw", "den"):
        raise OptionError(f"--type={options.type}: expected raw or den")
    options.chain.check()
    device = options.device.choose()
    options.memory.apply(device)
    nnet = read_nnet(model_in)
    set_test_modes(nnet, options.batchnorm_test_mode, options.dropout_test_mode)
    graph = den_graph_of(den_fst, nnet, model_in)
    added = AddedPosteriors(options.type == "den", options.apply_exp, options.clip_threshold)
    adder = PosteriorAdder(nnet, graph, options.chain, added, device)
    with TableWriter(examples_out, CHAIN_EXAMPLE) as writer:

        def add(key: str, example: NnetChainExample) -> None:
            writer.write(key, adder.add(example))

        count = for_each_of_kind(CHAIN_EXAMPLE, examples_in, add)
        if not count:
            raise EmptyError(f"{examples_in}: no examples")
    log.log(f"Read {count} neural-network training examples, wrote {count}")
