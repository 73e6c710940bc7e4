"""nnet3-discriminative-compute-from-egs: a model's output for each discriminative example."""

from nnet3tools.cli.nnet3_compute_from_egs import OutputOptions, write_outputs
from nnet3tools.cli.options import program

USAGE = """Read input nnet discriminative training examples, and compute the output for each one.
This program is similar to nnet3-compute-from-egs, but works with discriminative egs.
If --apply-exp=true, apply the Exp() function to the output before writing it out.
Note: This program uses only the input; it does not do forward-backward
over the lattice. See nnet3-discriminative-compute-objf for that.

Usage:  nnet3-discriminative-compute-from-egs [options] <raw-nnet-in> <training-examples-in> <matrices-out>

e.g.:
nnet3-discriminative-compute-from-egs --apply-exp=true 0.raw ark:1.degs ark:- | matrix-sum-rows ark:- ...
See also: nnet3-compute nnet3-compute-from-egs
"""  # noqa: E501


@program("nnet3-discriminative-compute-from-egs", USAGE, OutputOptions, num_args=3)
def main(options: OutputOptions, args: list[str]) -> None:
    from nnet3tools.discriminative.example import DISCRIMINATIVE_FRAMES

    write_outputs(args, options, "output", DISCRIMINATIVE_FRAMES)
