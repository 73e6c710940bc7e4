"""Functions shared by the programs that copy or convert tables or single objects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from nnet3tools.errors import OptionError, naming
from nnet3tools.io.files import is_table
from nnet3tools.io.table_reader import read_object

if TYPE_CHECKING:
    from nnet3tools.io.holders import Holder

T = TypeVar("T")
U = TypeVar("U")


def are_tables(read: str, written: str, what: str) -> bool:
    """Whether both words are table specifiers; OptionError, naming `what`, if only one is."""
    if is_table(read) != is_table(written):
        raise OptionError(f"Cannot mix archives with regular files (copying {what})")
    return is_table(read)


def convert_table(
    rspecifier: str,
    wspecifier: str,
    holders: tuple[Holder[T], Holder[U]],
    convert: Callable[[str, T], U | None],
) -> tuple[int, int]:
    """Write `convert(key, object)` of each object of a table, skipping None.

    Returns the numbers of written and skipped objects. `holders` are for input and output. User
    errors get the table's name and the key.
    """
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    num_done = num_failed = 0
    with (
        TableWriter(wspecifier, holders[1]) as writer,
        SequentialTableReader(rspecifier, holders[0]) as reader,
    ):
        for key, value in reader:
            with naming(f"{rspecifier}: key '{key}'"):
                converted = convert(key, value)
            if converted is None:
                num_failed += 1
                continue
            writer.write(key, converted)
            num_done += 1
    return num_done, num_failed


class OptionalTable:
    """An output table that exists only if its wspecifier is not empty."""

    def __init__(self, wspecifier: str, holder: Holder, stack: ExitStack) -> None:
        from nnet3tools.io.table import TableWriter

        self._writer = None
        if wspecifier:
            self._writer = stack.enter_context(TableWriter(wspecifier, holder))

    def write(self, key: str, value: object) -> None:
        """Write an object; does nothing if the table does not exist."""
        if self._writer is not None:
            self._writer.write(key, value)

    def flush(self) -> None:
        """Flush the table; does nothing if the table does not exist."""
        if self._writer is not None:
            self._writer.flush()


def lookup_by_speaker(
    name: str, holder: Holder[T], utt2spk: str, stack: ExitStack, refusal: str
) -> Callable[[str], T | None]:
    """A function from an utterance's key to its object, or None.

    `name` is a table, indexed by utterance or, with a table `utt2spk`, by speaker; `stack` closes
    it. Or `name` is a file with one object for all utterances; then a given `utt2spk` is an
    OptionError with the text `refusal`.
    """
    from nnet3tools.io.table import MappedTableReader

    if is_table(name):
        return stack.enter_context(MappedTableReader(name, holder, utt2spk)).get
    if utt2spk:
        raise OptionError(refusal)
    value = read_object(name, holder)
    return lambda key: value


def write_object(wxfilename: str, holder: Holder[T], value: T, binary: bool = True) -> None:
    """Write `value`, in the form of `holder`, to a file, pipe or "-"."""
    from nnet3tools.io.files import open_output

    with open_output(wxfilename, binary) as writer:
        holder.write(writer, value)
