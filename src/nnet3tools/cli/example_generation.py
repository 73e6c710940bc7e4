"""The common part of nnet3-get-egs and nnet3-get-egs-dense-targets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from nnet3tools.cli.options import OptionGroup, option_group
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.training.generation import GetEgsOptions, InputOptions
from nnet3tools.training.splitting import ExampleGenerationOptions

if TYPE_CHECKING:
    from nnet3tools.io.holders import Holder
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
    reads the targets, `make_targets(utterance, object)` converts them, and `what` is their name in
    messages.
    """
    from nnet3tools.io.holders import GENERAL_MATRIX
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter
    from nnet3tools.training.example import EXAMPLE
    from nnet3tools.training.generation import make_examples
    from nnet3tools.training.splitting import UtteranceSplitter

    splitter = UtteranceSplitter(options.chunks)
    with ExitStack() as stack:
        writer = stack.enter_context(TableWriter(args[2], EXAMPLE))
        features = stack.enter_context(SequentialTableReader(args[0], GENERAL_MATRIX))
        table = stack.enter_context(RandomAccessTableReader(args[1], holder))
        ivectors = open_ivectors(options.common, stack)

        def find(utterance: str) -> Targets | None:
            if (targets := table.get(utterance)) is None:
                log.warning(f"No {what} for key {utterance}")
                return None
            return make_targets(utterance, targets)

        make_examples(features, find, splitter, options.common, ivectors, writer.write)
        splitter.print_stats()
        splitter.check_any(args[0])


def open_ivectors(options: InputOptions, stack: ExitStack) -> IvectorSource | None:
    """The table of online iVectors that the options name; None if they name none."""
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
