"""nnet3-combine: write the average of the last n models, with the n that is best on examples."""

from __future__ import annotations

from nnet3tools.cli.combine_models import CombineOptions, combine_on_examples
from nnet3tools.cli.options import program

USAGE = """Using a subset of training or held-out examples, compute the average over the
first n nnet3 models where we maximize the objective function for n. Note that
the order of models has been reversed before being fed into this binary. So we
are actually combining last n models. Inputs and outputs are 'raw' nnets.

Usage:  nnet3-combine [options] <nnet-in1> <nnet-in2> ... <nnet-inN> <valid-examples-in> <nnet-out>

e.g.:
 nnet3-combine 1.1.raw 1.2.raw 1.3.raw ark:valid.egs 2.raw
"""


@program("nnet3-combine", USAGE, CombineOptions, num_args=(3, None))
def main(options: CombineOptions, args: list[str]) -> None:
    from nnet3tools.training.combination import FrameDiagnostics

    combine_on_examples(options, args, lambda nnet, device: FrameDiagnostics(device))
