"""nnet3-chain-acc-lda-stats: LDA statistics of a network's output on chain examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.nnet3_acc_lda_stats import Options, write_stats
from nnet3tools.cli.options import program
from nnet3tools.errors import DataError

if TYPE_CHECKING:
    from nnet3tools.chain.example import NnetChainExample
    from nnet3tools.training.example import NnetExample

USAGE = """Accumulate statistics in the same format as acc-lda (i.e. stats for
estimation of LDA and similar types of transform), starting from nnet+chain
training examples.  This program puts the features through the network,
and the network output will be the features; the supervision in the
training examples is used for the class labels.  Used in obtaining
feature transforms that help nnet training work better.
Note: the time boundaries it gets from the chain supervision will be
a little fuzzy (which is not ideal), but it should not matter much in
this situation

Usage:  nnet3-chain-acc-lda-stats [options] <raw-nnet-in> <training-examples-in> <lda-stats-out>

e.g.:
nnet3-chain-acc-lda-stats 0.raw ark:1.cegs 1.acc
See also: nnet-get-feature-transform
"""


def _with_posteriors(example: NnetChainExample) -> NnetExample:
    """A frame-level example with the inputs and, as targets, the posteriors of pdfs."""
    from nnet3tools.chain.supervision_posteriors import supervision_posteriors
    from nnet3tools.training.example import NnetExample, NnetIo

    if len(example.outputs) != 1 or example.outputs[0].name != "output":
        raise DataError("expected the example to have one output named 'output'")
    (output,) = example.outputs
    posteriors = supervision_posteriors(output.supervision)
    return NnetExample([*example.inputs, NnetIo("output", output.indexes, posteriors)])


@program("nnet3-chain-acc-lda-stats", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.chain.example import CHAIN_EXAMPLE
    from nnet3tools.training.example import for_each_of_kind
    from nnet3tools.training.lda_accumulation import LdaAccumulator

    def accumulate_all(accumulator: LdaAccumulator) -> int:
        def work(key: str, example: NnetChainExample) -> None:
            accumulator.accumulate(_with_posteriors(example))

        return for_each_of_kind(CHAIN_EXAMPLE, args[1], work)

    write_stats(options, args, accumulate_all)
