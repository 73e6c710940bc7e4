"""The mode of nnet3-compute that computes the outputs of utterances."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import DeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import OptionError, naming
from nnet3tools.executor.simple_options import SimpleComputationOptions
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
    from nnet3tools.io.table import TableWriter


class UtteranceOptions(OptionGroup):
    """Options of nnet3-compute for utterances."""

    simple: SimpleComputationOptions = option_group("", SimpleComputationOptions)
    inputs: InputOptions = option_group("", InputOptions)
    compiler: CompilerOptions = option_group("compiler", CompilerOptions)
    read_cache: str = option(
        "", "The location from which to read compiled programs (see --write-cache)"
    )
    write_cache: str = option(
        "",
        "The location to which to write the compiled programs, for the next run on the same "
        "network with the same options",
    )
    binary_write_cache: bool = option(True, "Write computation cache in binary mode")
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
            ("read-cache", self.read_cache),
            ("write-cache", self.write_cache),
            ("extra-left-context", self.simple.extra_left_context),
            ("extra-right-context", self.simple.extra_right_context),
        ):
            if given:
                raise OptionError(f"--{name} does not go with --looped=true")


def compute_all(
    computer: UtteranceComputer | LoopedComputer,
    features_rspecifier: str,
    options: InputOptions,
    counts: UtteranceCounts,
    writer: TableWriter[np.ndarray],
) -> None:
    """Compute the output of each utterance in a table, write it, and count the utterances."""
    pauses = InputPauses()
    given = ((*each, None) for each in utterances(features_rspecifier, options, counts, pauses))
    found = outputs_in_order(computer, given, pauses=pauses, flush=writer.flush)
    for key, output, _ in found:
        writer.write(key, np.exp(output, out=output) if options.apply_exp else output)
        counts.done += 1


def compute_utterances(
    options: UtteranceOptions, device_options: DeviceOptions, args: list[str]
) -> int:
    """Compute the outputs of a table of features and write them; returns the exit status."""
    from nnet3tools.executor.looped_computer import LoopedComputer
    from nnet3tools.io.files import prove_output
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import TableWriter
    from nnet3tools.optimizer.cache_files import load_cache, save_cache
    from nnet3tools.recognizer.models import read_model

    nnet_in, features_rspecifier, outputs_wspecifier = args
    options.inputs.check()
    simple = replace(options.simple, compiler=options.compiler)
    simple.check()
    if options.looped:
        options.check_looped()
    if options.write_cache:
        prove_output(options.write_cache)
    device = device_options.choose()
    counts = UtteranceCounts()
    nnet, priors = read_model(nnet_in, options.inputs.use_priors)
    computer: UtteranceComputer | LoopedComputer
    with naming(nnet_in):
        if options.looped:
            computer = LoopedComputer(nnet, simple, priors, like=device)
        else:
            computer = computer_for_tables([outputs_wspecifier], nnet, simple, priors, like=device)
    if options.read_cache and not isinstance(computer, LoopedComputer):
        load_cache(options.read_cache, computer.compiler)
    try:
        with TableWriter(outputs_wspecifier, MATRIX) as writer:
            compute_all(computer, features_rspecifier, options.inputs, counts, writer)
            counts.check()
    except NothingDoneError:
        pass
    if options.write_cache and counts.done and not isinstance(computer, LoopedComputer):
        save_cache(options.write_cache, computer.compiler, options.binary_write_cache)
    computer.close()
    return counts.report()
