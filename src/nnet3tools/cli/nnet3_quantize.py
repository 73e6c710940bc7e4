"""nnet3-quantize: give a network integer or packed weights, for faster computation on CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import DataError, EmptyError, OptionError, naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.recognizer.utterances import IvectorOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.training.example import NnetExample

USAGE = """\
Convert the weights of affine, linear, TDNN and convolution components to integers, with
one scale for each output, and prepare the network for test as nnet3-copy --prepare-for-test=true
does. Programs then quantize the inputs of these components, too, and compute products of integers.
With --bits=32 the weights stay floats, but are packed for products with few rows.
Works with 'raw' networks and acoustic models (.mdl). Kaldi's programs cannot read the result;
nnet3-copy --dequantize=true makes floats of the integers.

Usage:  nnet3-quantize [options] <nnet-in> <nnet-out>
e.g.:
 nnet3-quantize final.mdl final.int8.mdl
 nnet3-quantize --calibrate=scp:train_subset/feats.scp final.raw final.int8.raw
 nnet3-quantize --calibrate-egs=ark:cegs.1.ark final.mdl final.int8.mdl
See also: nnet3-copy, nnet3-am-copy, nnet3-info
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    bits: int = option(
        8,
        "Bits of a weight: 8 or 16 for integers; 32 for floats that are packed for products with 2 "
        "to 8 rows, which become faster. Nothing is rounded then, not even inputs.",
    )
    calibrate: str = option(
        "",
        "Rspecifier of features. If supplied, inputs of components are quantized with steps for "
        "the ranges that these features give; otherwise each row has the step for its own range.",
    )
    calibrate_egs: str = option(
        "",
        "Rspecifier of training examples (frame-level, chain or discriminative ones), instead of "
        "the features of --calibrate.",
    )
    float_components: str = option(
        "", "Components that keep float weights: names, separated by commas; * matches anything."
    )
    quantize_inputs: bool = option(
        False,
        "If true, components that read features or i-vectors are quantized, too. Columns of "
        "different size share the step of their row.",
    )
    ivectors: IvectorOptions = option_group("", IvectorOptions)


@program("nnet3-quantize", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.io.files import open_input, prove_output
    from nnet3tools.nnet.am_nnet import AmNnet
    from nnet3tools.nnet.finite import check_float
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.nnet.quantization import quantize

    nnet_in, nnet_out = args
    if options.bits not in (8, 16, 32):
        raise OptionError(f"--bits={options.bits}: expected 8, 16 or 32")
    if options.bits == 32 and (options.calibrate or options.calibrate_egs):
        raise OptionError("--bits=32 rounds no inputs: --calibrate and --calibrate-egs do nothing")
    if options.calibrate and options.calibrate_egs:
        raise OptionError("give --calibrate or --calibrate-egs, not both")
    prove_output(nnet_out)
    with open_input(nnet_in) as reader:
        is_acoustic = reader.peek_token() == "<TransitionModel>"
        model = AmNnet.read(reader) if is_acoustic else Nnet.read(reader)
    nnet = model.nnet if isinstance(model, AmNnet) else model
    check_float(nnet, nnet_in)
    with naming(nnet_in):
        names = _prepare(nnet, options)
    limits = _calibrated(nnet, names, options)
    with naming(nnet_in):
        errors = quantize(nnet, names, options.bits, limits)
    for name, error in errors.items():
        found = f", inputs {limits[name].tolist()}" if name in limits else ""
        kind = "packed float32" if options.bits == 32 else f"int{options.bits}"
        log.log(f"Component {name}: {kind}, rounding error {error:.3g}{found}")
    if isinstance(model, AmNnet):
        model.save(nnet_out, options.binary)
    else:
        from nnet3tools.nnet.model_file import write_nnet

        write_nnet(model, nnet_out, options.binary)
    log.log(f"Quantized {nnet_in} to {nnet_out}")


def _prepare(nnet: Nnet, options: Options) -> list[str]:
    """Prepare a network for quantization, in place; returns the names of components to quantize."""
    from nnet3tools.nnet.collapse import prepare_for_test
    from nnet3tools.nnet.config import name_matches_pattern
    from nnet3tools.nnet.quantization import (
        component_places,
        components_to_quantize,
        splice_in_components,
    )

    patterns = [pattern for pattern in options.float_components.split(",") if pattern]
    places = component_places(nnet)
    for pattern in patterns:
        if not any(name_matches_pattern(name, pattern) for name in places):
            raise DataError(f"--float-components: no component matches '{pattern}'")
    prepare_for_test(nnet)
    names = components_to_quantize(nnet, patterns, options.quantize_inputs or options.bits == 32)
    if not names:
        raise DataError("the network has no component to quantize")
    if spliced := splice_in_components(nnet, names):
        log.log(f"Made TDNN components of {', '.join(spliced)}")
    return names


def _calibrated(
    nnet: Nnet, names: Sequence[str], options: Options
) -> dict[str, NDArray[np.float32]]:
    """(least, greatest) input of each named component for the calibration data; {} without data.

    Components that the data do not reach, such as those of other outputs, are omitted.
    """
    from nnet3tools.nnet.quantization import observe_inputs

    if not (options.calibrate or options.calibrate_egs):
        return {}
    copy = nnet.copy()
    found = observe_inputs(copy, names)
    if options.calibrate:
        _run_on_features(copy, options)
    else:
        _run_on_examples(copy, options.calibrate_egs)
    limits = {name: np.array([low.min(), high.max()], "f") for name, (low, high) in found.items()}
    return {name: ends for name, ends in limits.items() if ends.any()}


def _run_on_features(nnet: Nnet, options: Options) -> None:
    """Run `nnet`, whose components record their inputs, on the utterances of --calibrate."""
    from nnet3tools.executor.simple_options import SimpleComputationOptions
    from nnet3tools.executor.utterance_computer import computer_together
    from nnet3tools.recognizer.outputs import outputs_in_order
    from nnet3tools.recognizer.utterances import UtteranceCounts, utterances

    options.ivectors.check()
    counts = UtteranceCounts()
    computer = computer_together(nnet, SimpleComputationOptions())
    inputs = utterances(options.calibrate, options.ivectors, counts)
    for _ in outputs_in_order(computer, ((*each, None) for each in inputs)):
        counts.done += 1
    computer.close()
    log.log(f"Calibrated with {counts.frames} frames of {counts.done} utterances")


def _run_on_examples(nnet: Nnet, rspecifier: str) -> None:
    """Run `nnet`, whose components record their inputs, on a table of examples."""
    from nnet3tools.cli.example_requests import AnyKindObjective, for_each_of_any_kind
    from nnet3tools.training.running import ExampleRunner

    runner = ExampleRunner(nnet, objective=AnyKindObjective())

    def compute(_: str, example: NnetExample) -> None:
        with runner.ready(example) as ready:
            runner.forward(ready)

    if (count := for_each_of_any_kind(rspecifier, compute)) == 0:
        raise EmptyError(f"{rspecifier}: no examples")
    log.log(f"Calibrated with {count} examples")
