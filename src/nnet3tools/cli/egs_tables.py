"""Copies, merges, shuffles and chooses examples of any kind, from table to table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from nnet3tools.cli.options import OptionGroup, option
from nnet3tools.errors import EmptyError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.io.holder import Holder
    from nnet3tools.io.table import TableWriter
    from nnet3tools.training.batched_changes import BatchedChanges
    from nnet3tools.training.merging import Mergeable
    from nnet3tools.training.minibatch_rules import ExampleMergingOptions

E = TypeVar("E")


# -- copying


class DrawOptions(OptionGroup):
    """Options that say which examples to copy, how many times, and to which table."""

    random: bool = option(
        False, "If true, will write frames to output archives randomly, not round-robin."
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


class CopyOptions(DrawOptions):
    """Options of the programs that copy examples."""

    left_context: int = option(-1, "Can be used to truncate the feature left-context we output.")
    right_context: int = option(-1, "Can be used to truncate the feature right-context we output.")
    weights: str = option(
        "", "Rspecifier indexed by the key of egs, with weights to scale the supervision with"
    )
    outputs: str = option(
        "", "Rspecifier indexed by the key of egs, with new names (e.g. 'output-0') for 'output'"
    )

    @property
    def changes_nothing(self) -> bool:
        """Whether these options leave all examples unchanged."""
        contexts = (self.left_context, self.right_context)
        return contexts == (-1, -1) and not self.weights and not self.outputs


class _Changer:
    """Applies copying options to examples; looks up --weights and --outputs by example key."""

    def __init__(
        self, options: CopyOptions, changes: BatchedChanges[Any], stack: ExitStack
    ) -> None:
        # Here, as they load NumPy.
        from nnet3tools.io.holders import FLOAT, TOKEN
        from nnet3tools.io.table import RandomAccessTableReader

        self._changes = changes
        self._weights = self._names = None
        if options.weights:
            self._weights = stack.enter_context(RandomAccessTableReader(options.weights, FLOAT))
        if options.outputs:
            self._names = stack.enter_context(RandomAccessTableReader(options.outputs, TOKEN))
        self._name = ""

    def weighted(self, key: str, example: Any) -> Any:
        """Scale an example by its weight, if any; warn and return None if a table lacks the key."""
        if self._weights is not None:
            if (weight := self._weights.get(key)) is None:
                log.warning(f"No weight for example key {key}")
                return None
            example = self._changes.scale(example, key, weight)
        if self._names is not None:
            if (name := self._names.get(key)) is None:
                log.warning(f"No new output-name for example key {key}")
                return None
            self._name = name
        return example

    def selected(self, key: str, example: Any) -> Any:
        """Select the part of an example that is kept and rename its output; None: no such part."""
        selected = self._changes.select(example, key)
        if selected is None or not self._name:
            return selected
        return self._changes.rename(selected, key, self._name)


_FINISHED_TOGETHER = 2048
"""The largest number of examples that wait for `finish`."""
_MOST_BYTES = 1 << 22


class _TablesInTurn:
    """Writes examples to tables; `write` says to which, by a number modulo the number of tables.

    Changed examples wait in memory until there are enough for one call of `changes.finish`, which
    turns them into the examples to write, or into their bytes.
    """

    def __init__(
        self, writers: list[TableWriter[Any]], changes: BatchedChanges[Any] | None
    ) -> None:
        self._writers, self._changes = writers, changes
        self._waiting: list[tuple[int, str, Any]] = []
        self._bytes_waiting = 0

    def write(self, place: int, key: str, example: Any) -> None:
        """Write an example to table number `place` modulo the number of tables, now or later."""
        number = place % len(self._writers)
        if self._changes is None:
            self._writers[number].write(key, example)
            return
        self._waiting.append((number, key, example))
        self._bytes_waiting += self._changes.num_bytes(example)
        if len(self._waiting) >= _FINISHED_TOGETHER or self._bytes_waiting > _MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Turn all waiting examples into the examples to write, and write them."""
        waiting, self._waiting, self._bytes_waiting = self._waiting, [], 0
        if self._changes is None or not waiting:
            return
        numbers, keys, examples = zip(*waiting, strict=True)
        objects = list(self._changes.finish(examples))
        for number, writer in enumerate(self._writers):
            chosen = [of_example == number for of_example in numbers]
            kept = list(itertools.compress(objects, chosen))
            writer.write_all(list(itertools.compress(keys, chosen)), kept)


def copy_examples(
    args: list[str],
    options: CopyOptions,
    holder: Holder[E],
    changes: BatchedChanges[Any] | None,
    batches: Holder[Any] | None = None,
) -> None:
    """Copy a table of examples to one or more tables in turn, with the changes of the options.

    `args` are the rspecifier and the wspecifiers. The order of random draws is Kaldi's. Without
    `changes` the examples may be any objects; the options must not name weights or outputs then.
    `batches`, if given, also reads SameLayoutBatches, which are selected together if possible.
    """
    from nnet3tools import draws
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.training.orders import draw_count

    draws.seed(options.srand)
    num_read = num_written = num_errors = 0
    with ExitStack() as stack:
        changer = None if changes is None else _Changer(options, changes, stack)
        writers = [stack.enter_context(TableWriter(spec, holder)) for spec in args[1:]]
        tables = _TablesInTurn(writers, changes)
        is_single = len(writers) == options.keep_proportion == 1
        if options.random or options.weights or options.outputs or not is_single:
            batches = None
        examples = stack.enter_context(SequentialTableReader[Any](args[0], batches or holder))
        # Examples before one that cannot be read or changed are written, if to a pipe.
        stack.callback(tables.flush)

        def singles() -> Iterator[tuple[str, Any]]:
            """Write the selected parts of batches; yield all other examples."""
            nonlocal num_read, num_written
            for key, example in examples:
                if changes is None or not hasattr(example, "records"):
                    yield key, example
                elif (selected := changes.select_all(example)) is None:
                    yield from example.records()
                else:
                    tables.flush()
                    writers[0].write_all(*selected)
                    num_read += len(example)
                    num_written += len(selected[0])

        for key, example in singles():
            num_read += 1
            count = draw_count(options.keep_proportion)
            weighted = example if changer is None else changer.weighted(key, example)
            if weighted is None:
                num_errors += 1
                continue
            for _ in range(count):
                place = draws.rand() if options.random else num_written
                copied = weighted if changer is None else changer.selected(key, weighted)
                if copied is not None:
                    tables.write(place, key, copied)
                    num_written += 1
        tables.flush()
        log.log(
            f"Read {num_read} neural-network training examples, wrote {num_written}, "
            f"{num_errors} examples had errors."
        )
        if num_written == 0:
            raise EmptyError(f"{args[0]}: there is nothing to write of its {num_read} examples")


# -- merging


def merge_table(
    args: list[str],
    options: ExampleMergingOptions,
    holder: Holder[E],
    kind: Mergeable[E],
    prepare: Callable[[str, E], E] | None = None,
    suffix: Callable[[E], str] | None = None,
) -> None:
    """Merge the examples of a table into minibatches; `args` are rspecifier and wspecifier.

    `kind` has the functions that merge examples. `prepare(key, example)`, if given, returns the
    example to merge; `suffix(minibatch)` is appended to the key.
    """
    from nnet3tools.io.table import TableWriter
    from nnet3tools.training.example import for_each_of_kind
    from nnet3tools.training.merging import ExampleMerger

    options.rules()
    with TableWriter(args[1], holder) as writer:

        def write(key: str, example: E) -> None:
            writer.write(key + suffix(example) if suffix else key, example)

        merger = ExampleMerger(kind, options, write)

        def accept(key: str, example: E) -> None:
            merger.accept(prepare(key, example) if prepare else example)

        for_each_of_kind(holder, args[0], accept)
        merger.finish()
        if merger.num_written == 0:
            raise EmptyError(
                f"{args[0]}: no minibatch can be made of its {merger.num_accepted} examples "
                f"(--minibatch-size={options.minibatch_size})"
            )


# -- shuffling


class ShuffleOptions(OptionGroup):
    """Options of the programs that shuffle examples."""

    srand: int = option(0, "Seed for random number generator")
    buffer_size: int = option(
        0,
        "If >0, size of a buffer we use to do limited-memory partial randomization.  Otherwise, do "
        "full randomization.",
    )


def shuffle_table(args: list[str], options: ShuffleOptions, holder: Holder[E]) -> None:
    """Copy a table of examples in random order; `args` are rspecifier and wspecifier."""
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.training.orders import shuffle_in_buffer, shuffled

    num_done = 0
    with TableWriter(args[1], holder) as writer, SequentialTableReader(args[0], holder) as examples:
        if options.buffer_size:
            order = shuffle_in_buffer(examples, options.buffer_size)
        else:
            order = iter(shuffled(examples, options.srand))
        for key, example in order:
            writer.write(key, example)
            num_done += 1
        if num_done == 0:
            raise EmptyError(f"{args[0]}: no examples to shuffle")
    how = "using a buffer (partial randomization)" if options.buffer_size else ""
    log.log(f"Shuffled order of {num_done} neural-network training examples {how}")


# -- choosing


class SubsetOptions(OptionGroup):
    """Options of the programs that choose a subset of examples."""

    srand: int = option(0, "Seed for random number generator")
    n: int = option(1000, "Number of examples to output")
    randomize_order: bool = option(True, "If true, randomize the order of the output")


def subset_table(args: list[str], options: SubsetOptions, holder: Holder[E], what: str) -> None:
    """Copy a random subset of the table args[0] to args[1]; the log calls the examples `what`."""
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.training.orders import random_subset

    with TableWriter(args[1], holder) as writer, SequentialTableReader(args[0], holder) as examples:
        chosen, num_read = random_subset(
            examples, options.n, options.srand, options.randomize_order
        )
        if num_read == 0:
            raise EmptyError(f"{args[0]}: no examples to choose from")
        for key, example in chosen:
            writer.write(key, example)
    log.log(f"Selected a subset of {len(chosen)} out of {num_read} {what} training examples ")
