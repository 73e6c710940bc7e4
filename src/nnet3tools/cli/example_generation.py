"""Programs that make examples of frames."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.training.generation import GetEgsOptions, InputOptions
from nnet3tools.training.splitting import ExampleGenerationOptions

if TYPE_CHECKING:
    from nnet3tools.io.holders import Holder
    from nnet3tools.io.posterior import Posterior
    from nnet3tools.training.generation import IvectorSource, Targets

T = TypeVar("T")


class ExampleOptions(OptionGroup):
    """The options of nnet3-get-egs and nnet3-get-egs-dense-targets."""

    common: GetEgsOptions = option_group("", GetEgsOptions)
    chunks: ExampleGenerationOptions = option_group("", ExampleGenerationOptions)


def write_examples(
    args: list[str],
    options: ExampleOptions,
    holder: Holder[T],
    make_targets: Callable[[str, T], Targets],
    what: str,
) -> None:
    """Cut tables of features and targets into frame-level examples.

    `args` are the features' and the targets' rspecifier and the examples' wspecifier. `holder`
    reads the targets, `make_targets(utterance, object)` converts them, messages call them `what`.
    """
    from nnet3tools.io.holders import GENERAL_MATRIX
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter
    from nnet3tools.training.example_format import ENCODED_EXAMPLES
    from nnet3tools.training.example_writer import ExampleWriter
    from nnet3tools.training.generation import make_examples
    from nnet3tools.training.splitting import UtteranceSplitter

    splitter = UtteranceSplitter(options.chunks)
    with ExitStack() as stack:
        writer = stack.enter_context(TableWriter(args[2], ENCODED_EXAMPLES))
        features = stack.enter_context(SequentialTableReader(args[0], GENERAL_MATRIX))
        table = stack.enter_context(RandomAccessTableReader(args[1], holder))
        ivectors = open_ivectors(options.common, stack)

        def find(utterance: str) -> Targets | None:
            if (targets := table.get(utterance)) is None:
                log.warning(f"No {what} for key {utterance}")
                return None
            return make_targets(utterance, targets)

        write = ExampleWriter(writer).write
        make_examples(features, find, splitter, options.common, ivectors, write)
        splitter.print_stats()
        splitter.check_any(args[0])


def open_ivectors(options: InputOptions, stack: ExitStack) -> IvectorSource | None:
    """The table of online iVectors that the options name, closed by `stack`; None if none."""
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import RandomAccessTableReader
    from nnet3tools.training.generation import IvectorSource

    if not options.ivector_rspecifier:
        return None
    if options.online_ivector_period < 1:
        raise OptionError(
            f"--online-ivector-period={options.online_ivector_period} is not positive"
        )
    reader = RandomAccessTableReader(options.ivector_rspecifier, MATRIX)
    return IvectorSource(
        stack.enter_context(reader), options.online_ivector_period, options.length_tolerance
    )


GET_EGS_USAGE = """Get frame-by-frame examples of data for nnet3 neural network training.
Essentially this is a format change from features and posteriors
into a special frame-by-frame format.

Usage:  nnet3-get-egs [options] <features-rspecifier> <pdf-post-rspecifier> <egs-out>

e.g.:
nnet3-get-egs --num-pdfs=2658 --left-context=12 --right-context=9 --num-frames=8 \\
   scp:feats.scp ark:post.ark ark:1.egs
See also: nnet3-get-egs-dense-targets, nnet3-merge-egs
"""


class Nnet3GetEgsOptions(OptionGroup):
    num_pdfs: int = option(-1, "Number of pdfs in the acoustic model")
    examples: ExampleOptions = option_group("", ExampleOptions)


@program("nnet3-get-egs", GET_EGS_USAGE, Nnet3GetEgsOptions, num_args=3)
def nnet3_get_egs(options: Nnet3GetEgsOptions, args: list[str]) -> None:
    from nnet3tools.io.holders import POSTERIOR
    from nnet3tools.training.generation import PosteriorTargets

    if options.num_pdfs <= 0:
        raise OptionError("--num-pdfs is required, and must be positive")

    def make_targets(utterance: str, posterior: Posterior) -> Targets:
        return PosteriorTargets(utterance, posterior, options.num_pdfs)

    write_examples(args, options.examples, POSTERIOR, make_targets, "pdf-level posterior")


GET_EGS_DENSE_TARGETS_USAGE = """\
Get frame-by-frame examples of data for nnet3 neural network training.
This program is similar to nnet3-get-egs, but the targets here are dense matrices
instead of posteriors (sparse matrices).
This is useful when you want the targets to be continuous real-valued with the
neural network possibly trained with a quadratic objective.

Usage:  nnet3-get-egs-dense-targets --num-targets=<n> [options] <features-rspecifier> \
<targets-rspecifier> <egs-out>

e.g.:
nnet3-get-egs-dense-targets --num-targets=26 --left-context=12 --right-context=9 \\
   --num-frames=8 scp:feats.scp ark:snr.ark ark:1.egs
See also: nnet3-get-egs, nnet3-merge-egs
"""


class GetEgsDenseTargetsOptions(OptionGroup):
    num_targets: int = option(
        -1, "Output dimension in egs, only used to check targets have correct dim if supplied"
    )
    examples: ExampleOptions = option_group("", ExampleOptions)


@program(
    "nnet3-get-egs-dense-targets",
    GET_EGS_DENSE_TARGETS_USAGE,
    GetEgsDenseTargetsOptions,
    num_args=3,
)
def nnet3_get_egs_dense_targets(options: GetEgsDenseTargetsOptions, args: list[str]) -> None:
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.training.generation import MatrixTargets

    def make_targets(utterance: str, matrix: np.ndarray) -> Targets:
        return MatrixTargets(utterance, matrix, options.num_targets)

    write_examples(args, options.examples, MATRIX, make_targets, "target matrix")
