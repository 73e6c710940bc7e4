"""nnet3-compute-from-egs: a model's output for each example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import DeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import EmptyError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.io.holder import Holder
    from nnet3tools.training.example import NnetExample

USAGE = """Read input nnet training examples, and compute the output for each one.
If --apply-exp=true, apply the Exp() function to the output before writing
it out.

Usage:  nnet3-compute-from-egs [options] <raw-nnet-in> <training-examples-in> <matrices-out>

e.g.:
nnet3-compute-from-egs --apply-exp=true 0.raw ark:1.egs ark:- | matrix-sum-rows ark:- ...
See also: nnet3-compute
"""


class OutputOptions(OptionGroup):
    """Options of the programs that write network outputs for examples."""

    binary: bool = option(True, "Accepted for compatibility; the wspecifier decides")
    apply_exp: bool = option(False, "If true, apply exp function to output")
    device: DeviceOptions = option_group("", DeviceOptions)


class Options(OutputOptions):
    output_name: str = option("output", "Do computation for specified output-node")


@program("nnet3-compute-from-egs", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    write_outputs(args, options, options.output_name)


def write_outputs(
    args: list[str],
    options: OutputOptions,
    output_name: str,
    holder: Holder[NnetExample] | None = None,
) -> None:
    """Write the output `output_name` of a raw model for each example.

    `args` are the model, the examples' rspecifier and the matrices' wspecifier. `holder` reads
    examples other than frame examples.
    """
    from nnet3tools import tensor
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import TableWriter
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.training.example import EXAMPLE, for_each_of_kind
    from nnet3tools.training.running import ExampleRunner

    device = options.device.choose()
    runner = ExampleRunner(read_nnet(args[0]), like=device)
    with TableWriter(args[2], MATRIX) as writer:

        def compute(key: str, example: NnetExample) -> None:
            with runner.ready(example) as ready:
                output = tensor.to_host(runner.forward(ready).get_output(output_name))
            writer.write(key, np.exp(output) if options.apply_exp else output)

        if (count := for_each_of_kind(holder or EXAMPLE, args[1], compute, runner.ahead)) == 0:
            raise EmptyError(f"{args[1]}: no examples")
    log.log(f"Processed {count} examples.")
