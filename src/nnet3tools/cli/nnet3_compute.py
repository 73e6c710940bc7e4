"""nnet3-compute: computes network outputs for utterances, or runs a compiled program."""

from __future__ import annotations

from nnet3tools.cli.compute_utterances import UtteranceOptions, compute_utterances
from nnet3tools.cli.device_options import CudaDeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import DataError, OptionError, ProgramError
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Propagate the features through raw neural network model and write the output.
If --apply-exp=true, apply the Exp() function to the output before writing it out.
With --computation=<rxfilename>, run a program that nnet3-compile wrote: once, on tables whose
keys are the names of network nodes, rows in the program's order.

Usage: nnet3-compute [options] <nnet-in> <features-rspecifier> <matrix-wspecifier>
 or:  nnet3-compute --computation=<computation-rxfilename> [options]
         <raw-nnet-in> <inputs-rspecifier> <outputs-wspecifier>
e.g.:
 nnet3-compute final.raw scp:feats.scp ark:nnet_prediction.ark
 nnet3-compute --computation=backward.comp --output-derivs=ark:derivs.ark \\
    --input-derivs=ark:input_derivs.ark --model-derivative=gradient.raw \\
    final.raw ark:inputs.ark ark:outputs.ark
See also: nnet3-compile, nnet3-compute-from-egs
"""


class Options(OptionGroup):
    computation: str = option(
        "", "If supplied, the compiled program to run (an rxfilename); see above."
    )
    output_derivs: str = option(
        "",
        "With --computation: rspecifier of derivatives with respect to the outputs, keyed by node "
        "name; if supplied, the backward part of the program is run.",
    )
    input_derivs: str = option(
        "", "With --output-derivs: wspecifier for the derivatives with respect to the inputs."
    )
    model_derivative: str = option(
        "", "With --output-derivs: wxfilename for the model derivative, as a network."
    )
    device: CudaDeviceOptions = option_group("", CudaDeviceOptions)
    compute: ComputeOptions = option_group("computation", ComputeOptions)
    utterances: UtteranceOptions = option_group("", UtteranceOptions)


@program("nnet3-compute", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int | None:
    """Compute network outputs of a table of features, or run a compiled program.

    Returns the exit status.
    """
    if options.computation:
        run_program_once(options, args)
        return None
    for name in ("output_derivs", "input_derivs", "model_derivative"):
        if getattr(options, name):
            raise OptionError(f"--{name.replace('_', '-')} needs --computation")
    return compute_utterances(options.utterances, options.device, args)


def run_program_once(options: Options, args: list[str]) -> None:
    """Run a compiled program (--computation) on input files; writes all outputs to files."""
    from nnet3tools.executor.run_computation import check_fits, run_computation
    from nnet3tools.nnet.model_file import read_nnet, write_nnet
    from nnet3tools.program.files import load_computation

    nnet_in, inputs_rspecifier, outputs_wspecifier = args
    for name in ("input_derivs", "model_derivative"):
        if getattr(options, name) and not options.output_derivs:
            raise OptionError(f"--{name.replace('_', '-')} needs --output-derivs")
    device = options.device.choose()
    nnet = read_nnet(nnet_in)
    computation = load_computation(options.computation)
    check_fits(computation, nnet, options.computation)
    inputs = _read_by_node(inputs_rspecifier)
    derivs = _read_by_node(options.output_derivs) if options.output_derivs else None
    if options.model_derivative and not computation.need_model_derivative:
        raise DataError(f"{options.computation}: the program computes no model derivative")
    try:
        result = run_computation(options.compute, computation, nnet, inputs, derivs, like=device)
    except ProgramError as error:  # the checker does not check precomputed indexes
        lines = [str(error), *getattr(error, "__notes__", [])]
        reason = " ".join(line.partition("\n")[0] for line in lines)
        raise DataError(f"{options.computation}: the program cannot be run: {reason}") from error
    _write_by_node(outputs_wspecifier, result.outputs)
    if options.input_derivs:
        _write_by_node(options.input_derivs, result.input_derivs)
    if options.model_derivative:
        assert result.model_derivative is not None
        write_nnet(result.model_derivative, options.model_derivative)
    log.log(f"Ran {len(computation.commands)} commands, {len(result.outputs)} outputs")


def _read_by_node(rspecifier: str) -> dict[str, np.ndarray]:
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader

    matrices: dict[str, np.ndarray] = {}
    with SequentialTableReader(rspecifier, MATRIX) as reader:
        for name, matrix in reader:
            if name in matrices:
                raise DataError(f"{rspecifier}: two matrices for node '{name}'")
            matrices[name] = matrix
    if not matrices:
        raise DataError(f"{rspecifier}: no matrices")
    return matrices


def _write_by_node(wspecifier: str, matrices: dict[str, np.ndarray]) -> None:
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import TableWriter

    with TableWriter(wspecifier, MATRIX) as writer:
        for name, matrix in matrices.items():
            writer.write(name, matrix)
