"""nnet3-copy-egs: copy examples, cut them down, weight or rename them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from nnet3tools.cli.options import option, program
from nnet3tools.errors import EmptyError
from nnet3tools.io import log
from nnet3tools.io.holders import FLOAT, TOKEN, Holder
from nnet3tools.io.table import RandomAccessTableReader
from nnet3tools.training.example import NnetExample
from nnet3tools.training.selection import scale_supervision

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


class _Changer:
    """Weights and new names, looked up by key."""

    def __init__(self, options: Options, stack: ExitStack) -> None:
        def table(rspecifier: str, holder: Holder) -> RandomAccessTableReader | None:
            if not rspecifier:
                return None
            return stack.enter_context(RandomAccessTableReader(rspecifier, holder))

        self._weights = table(options.weights, FLOAT)
        self._names = table(options.outputs, TOKEN)
        self.num_errors = 0

    def change(self, key: str, example: NnetExample) -> tuple[NnetExample | None, str]:
        """The weighted example (None, after a warning, if something is missing), the new name."""
        name = ""
        if self._weights is not None:
            if (weight := self._weights.get(key)) is None:
                return self._missing(f"No weight for example key {key}")
            example = scale_supervision(example, key, weight)
        if self._names is not None:
            if (new_name := self._names.get(key)) is None:
                return self._missing(f"No new output-name for example key {key}")
            name = new_name
        return example, name

    def _missing(self, message: str) -> tuple[None, str]:
        log.warning(message)
        self.num_errors += 1
        return None, ""


@program("nnet3-copy-egs", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> None:
    """Copy to one or more tables in turn; the order of random draws is Kaldi's."""
    from nnet3tools import tensor
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.training.example import EXAMPLE
    from nnet3tools.training.selection import FrameSelection, draw_count, rename_output

    tensor.random.seed(options.srand)
    selection = FrameSelection(
        options.frame, options.left_context, options.right_context, options.frame_shift
    )
    num_read = num_written = 0
    with ExitStack() as stack:
        writers = [stack.enter_context(TableWriter(spec, EXAMPLE)) for spec in args[1:]]
        changer = _Changer(options, stack)
        for key, example in stack.enter_context(SequentialTableReader(args[0], EXAMPLE)):
            num_read += 1
            count = draw_count(options.keep_proportion)
            changed, name = changer.change(key, example)
            for _ in range(count):
                if changed is None:
                    break
                place = tensor.random.rand() if options.random else num_written
                if (copied := selection.apply(changed, key)) is None:
                    continue
                copied = rename_output(copied, key, name) if name else copied
                writers[place % len(writers)].write(key, copied)
                num_written += 1
        log.log(
            f"Read {num_read} neural-network training examples, wrote {num_written}, "
            f"{changer.num_errors} examples had errors."
        )
        if num_written == 0:
            raise EmptyError(f"{args[0]}: there is nothing to write of its {num_read} examples")
