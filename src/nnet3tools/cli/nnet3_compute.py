"""Programs that compute the outputs of utterances, or run a compiled program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import CudaDeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.cli.program_cache import ProgramCacheOptions
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import DataError, OptionError, ProgramError, naming
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.recognizer.outputs import computer_for_tables, outputs_in_order
from nnet3tools.recognizer.utterances import (
    InputOptions,
    InputPauses,
    NothingDoneError,
    UtteranceCounts,
    utterances,
)

if TYPE_CHECKING:
    from nnet3tools.executor.looped_computer import LoopedComputer
    from nnet3tools.executor.utterance_computer import UtteranceComputer
    from nnet3tools.nnet.nnet import Nnet


class UtteranceOptions(OptionGroup):
    """Options of nnet3-compute for utterances."""

    simple: SimpleComputationOptions = option_group("", SimpleComputationOptions)
    inputs: InputOptions = option_group("", InputOptions)
    compiler: CompilerOptions = option_group("compiler", CompilerOptions)
    cache: ProgramCacheOptions = option_group("", ProgramCacheOptions)
    looped: bool = option(
        False,
        "If true, compute each utterance as a stream, as Kaldi's online decoding does: one program "
        "for chunks of --frames-per-chunk frames carries the state of recurrences from chunk to "
        "chunk, in constant memory. Left context is exact, so --extra-left-context does not "
        "apply (--extra-left-context-initial does).",
    )

    def check_looped(self) -> None:
        """OptionError if an option is set that does not apply with --looped=true."""
        for name, given in (
            ("read-cache", self.cache.read_cache),
            ("write-cache", self.cache.write_cache),
            ("extra-left-context", self.simple.extra_left_context),
            ("extra-right-context", self.simple.extra_right_context),
        ):
            if given:
                raise OptionError(f"--{name} does not go with --looped=true")


def compute_table(
    args: list[str],
    inputs: InputOptions,
    cache: ProgramCacheOptions,
    new_computer: Callable[[Nnet, np.ndarray | None], UtteranceComputer | LoopedComputer],
    log_batches: bool = False,
) -> int:
    """Write network outputs; `args`: model, features, outputs. Returns the exit status.

    `new_computer` makes the computer of a network and of the priors that divide its outputs. With
    `log_batches`, the number of minibatches is logged.
    """
    from nnet3tools.executor.looped_computer import LoopedComputer
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import TableWriter
    from nnet3tools.recognizer.models import read_model

    nnet_in, features_rspecifier, outputs_wspecifier = args
    counts, pauses = UtteranceCounts(), InputPauses()
    nnet, priors = read_model(nnet_in, inputs.use_priors)
    with naming(nnet_in):
        computer = new_computer(nnet, priors)
    if not isinstance(computer, LoopedComputer):
        cache.read(computer.compiler)
    with contextlib.suppress(NothingDoneError), TableWriter(outputs_wspecifier, MATRIX) as writer:
        given = ((*each, None) for each in utterances(features_rspecifier, inputs, counts, pauses))
        found = outputs_in_order(computer, given, pauses=pauses, flush=writer.flush)
        for key, output, _ in found:
            writer.write(key, np.exp(output, out=output) if inputs.apply_exp else output)
            counts.done += 1
        counts.check()
    if not isinstance(computer, LoopedComputer):
        if counts.done:
            cache.write(computer.compiler)
        computer.close(log_batches)
    return counts.report()


COMPUTE_USAGE = """Propagate the features through raw neural network model and write the output.
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


class Nnet3ComputeOptions(OptionGroup):
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


@program("nnet3-compute", COMPUTE_USAGE, Nnet3ComputeOptions, num_args=3)
def nnet3_compute(options: Nnet3ComputeOptions, args: list[str]) -> int | None:
    """Compute network outputs of a table of features, or run a compiled program.

    Returns the exit status.
    """
    if options.computation:
        run_program_once(options, args)
        return None
    for name in ("output_derivs", "input_derivs", "model_derivative"):
        if getattr(options, name):
            raise OptionError(f"--{name.replace('_', '-')} needs --computation")
    given = options.utterances
    given.inputs.check()
    simple = replace(given.simple, compiler=given.compiler)
    simple.check()
    if given.looped:
        given.check_looped()
    given.cache.check()
    device = options.device.choose()

    def new_computer(nnet: Nnet, priors: np.ndarray | None) -> UtteranceComputer | LoopedComputer:
        from nnet3tools.executor.looped_computer import LoopedComputer

        if given.looped:
            return LoopedComputer(nnet, simple, priors, like=device)
        return computer_for_tables(args[2:], nnet, simple, priors, like=device)

    return compute_table(args, given.inputs, given.cache, new_computer)


def run_program_once(options: Nnet3ComputeOptions, args: list[str]) -> None:
    """Run a compiled program (--computation) on input files; writes all outputs to files."""
    from nnet3tools.executor.run_computation import run_computation
    from nnet3tools.nnet.model_file import read_nnet, write_nnet
    from nnet3tools.program.files import load_computation

    nnet_in, inputs_rspecifier, outputs_wspecifier = args
    for name in ("input_derivs", "model_derivative"):
        if getattr(options, name) and not options.output_derivs:
            raise OptionError(f"--{name.replace('_', '-')} needs --output-derivs")
    device = options.device.choose()
    nnet = read_nnet(nnet_in)
    computation = load_computation(options.computation, nnet)
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


COMPUTE_BATCH_USAGE = """\
Propagate the features through raw neural network model and write the output. This
version computes chunks of several utterances together, which is faster where matrices are small,
and on a GPU. If --apply-exp=true, apply the Exp() function to the output before writing it out.

Usage: nnet3-compute-batch [options] <nnet-in> <features-rspecifier> <matrix-wspecifier>
e.g.:
 nnet3-compute-batch final.raw scp:feats.scp ark:nnet_prediction.ark
See also: nnet3-compute
"""


class ComputeBatchOptions(OptionGroup):
    batch: BatchComputationOptions = option_group("", BatchComputationOptions)
    inputs: InputOptions = option_group("", InputOptions)
    compiler: CompilerOptions = option_group("compiler", CompilerOptions)
    cache: ProgramCacheOptions = option_group("", ProgramCacheOptions)
    device: CudaDeviceOptions = option_group("", CudaDeviceOptions)


@program("nnet3-compute-batch", COMPUTE_BATCH_USAGE, ComputeBatchOptions, num_args=3)
def nnet3_compute_batch(options: ComputeBatchOptions, args: list[str]) -> int:
    from nnet3tools.executor.utterance_computer import computer_together

    options.inputs.check()
    batch = replace(options.batch, compiler=options.compiler)
    batch.check()
    options.cache.check()
    device = options.device.choose()
    return compute_table(
        args,
        options.inputs,
        options.cache,
        lambda nnet, priors: computer_together(nnet, batch, priors, like=device),
        log_batches=True,
    )
