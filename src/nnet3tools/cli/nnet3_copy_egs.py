"""nnet3-copy-egs: copy examples, cut them down, weight or rename them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from nnet3tools.cli.options import option, program
from nnet3tools.errors import EmptyError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.io.holder import Holder
    from nnet3tools.io.table import RandomAccessTableReader
    from nnet3tools.training.example import NnetExample

T = TypeVar("T")

USAGE = """Copy examples (single frames or fixed-size groups of frames) for neural
network training, possibly changing the binary mode.  Supports multiple wspecifiers, in
which case it will write the examples round-robin to the outputs.

Usage:  nnet3-copy-egs [options] <egs-rspecifier> <egs-wspecifier1> [<egs-wspecifier2> ...]

e.g.:
nnet3-copy-egs ark:train.egs ark,t:text.egs
or:
nnet3-copy-egs ark:train.egs ark:1.egs ark:2.egs
See also: nnet3-subset-egs, nnet3-get-egs, nnet3-merge-egs, nnet3-shuffle-egs
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-copy-egs."""

    random: bool = option(
        False, "If true, will write frames to output archives randomly, not round-robin."
    )
    frame_shift: int = option(
        0,
        "Allows you to shift time values in the supervision data (excluding iVector data).  Only "
        "really useful for topologies with modulus != 1.  Done after any frame selection.",
    )
    keep_proportion: float = option(
        1.0,
        "If <1.0, randomly keep this proportion of the input samples.  If >1.0, in expectation "
        "copy a sample this many times.",
    )
    srand: int = option(
        0,
        "Seed for random number generator (only relevant if --random=true or --keep-proportion != "
        "1.0)",
    )
    frame: str = option(
        "", "A number 0, 1, etc. to select a single frame of each example, or 'random'"
    )
    left_context: int = option(-1, "Can be used to truncate the feature left-context we output.")
    right_context: int = option(-1, "Can be used to truncate the feature right-context we output.")
    weights: str = option(
        "", "Rspecifier indexed by the key of egs, with weights to scale the supervision with"
    )
    outputs: str = option(
        "", "Rspecifier indexed by the key of egs, with new names (e.g. 'output-0') for 'output'"
    )


class _Changes:
    """What the options say is to be changed in examples: frames, context, weights, names."""

    def __init__(self, options: Options, stack: ExitStack) -> None:
        # Here, as they load NumPy.
        from nnet3tools.io.holders import FLOAT, TOKEN
        from nnet3tools.io.table import RandomAccessTableReader
        from nnet3tools.training.selection import FrameSelection

        def table(rspecifier: str, holder: Holder[T]) -> RandomAccessTableReader[T] | None:
            if not rspecifier:
                return None
            return stack.enter_context(RandomAccessTableReader(rspecifier, holder))

        self._weights = table(options.weights, FLOAT)
        self._names = table(options.outputs, TOKEN)
        self._name = ""
        self._selection = FrameSelection(
            options.frame, options.left_context, options.right_context, options.frame_shift
        )

    def weighted(self, key: str, example: NnetExample) -> NnetExample | None:
        """The weighted example; None, after a warning, if its weight or name is missing."""
        from nnet3tools.training.selection import scale_supervision

        if self._weights is not None:
            if (weight := self._weights.get(key)) is None:
                log.warning(f"No weight for example key {key}")
                return None
            example = scale_supervision(example, key, weight)
        if self._names is not None:
            if (name := self._names.get(key)) is None:
                log.warning(f"No new output-name for example key {key}")
                return None
            self._name = name
        return example

    def selected(self, key: str, example: NnetExample) -> NnetExample | None:
        """One copy of the example that `weighted` gave last; None if its frame is not there."""
        from nnet3tools.training.selection import rename_output

        selected = self._selection.apply(example, key)
        if selected is None or not self._name:
            return selected
        return rename_output(selected, key, self._name)


def _changes(options: Options, stack: ExitStack) -> tuple[_Changes | None, Holder[Any]]:
    """The changes, None if there are none, and the kind of object that examples are read as."""
    frames = (options.frame, options.left_context, options.right_context, options.frame_shift)
    if frames == ("", -1, -1, 0) and not options.weights and not options.outputs:
        from nnet3tools.training.example_bytes import EXAMPLE_BYTES

        return None, EXAMPLE_BYTES
    from nnet3tools.training.example import EXAMPLE

    return _Changes(options, stack), EXAMPLE


@program("nnet3-copy-egs", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> None:
    """Copy to one or more tables in turn; the order of random draws is Kaldi's."""
    from nnet3tools import draws
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.training.orders import draw_count

    draws.seed(options.srand)
    num_read = num_written = num_errors = 0
    with ExitStack() as stack:
        changes, holder = _changes(options, stack)
        writers = [stack.enter_context(TableWriter(spec, holder)) for spec in args[1:]]
        for key, example in stack.enter_context(SequentialTableReader(args[0], holder)):
            num_read += 1
            count = draw_count(options.keep_proportion)
            if changes is not None and (example := changes.weighted(key, example)) is None:
                num_errors += 1
                continue
            for _ in range(count):
                place = draws.rand() if options.random else num_written
                copied = example if changes is None else changes.selected(key, example)
                if copied is not None:
                    writers[place % len(writers)].write(key, copied)
                    num_written += 1
        log.log(
            f"Read {num_read} neural-network training examples, wrote {num_written}, "
            f"{num_errors} examples had errors."
        )
        if num_written == 0:
            raise EmptyError(f"{args[0]}: there is nothing to write of its {num_read} examples")
