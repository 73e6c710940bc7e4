"""Programs called as from a shell, but in this process, and the tables that they read and write."""

from collections.abc import Mapping
from typing import Any

from nnet3tools.cli.programs import main_of
from nnet3tools.io.holders import MATRIX, Holder
from nnet3tools.io.table import SequentialTableReader, TableWriter


def run(program: str, *words: object) -> int:
    """The exit status of a program."""
    return main_of(program)([*map(str, words)])


def must(program: str, *words: object) -> None:
    """Run a program that has to end with status 0."""
    assert run(program, *words) == 0, (program, *words)


def write_table(wspecifier: str, values: Mapping[str, Any], holder: Holder = MATRIX) -> None:
    """Write all values to a table."""
    with TableWriter(wspecifier, holder) as writer:
        for key, value in values.items():
            writer.write(key, value)


def write_tables(name: str, values: Mapping[str, Any], holder: Holder) -> None:
    """Write the archives `name`.bin, binary, and `name`.txt, text."""
    write_table(f"ark:{name}.bin", values, holder)
    write_table(f"ark,t:{name}.txt", values, holder)


def read_table(rspecifier: str, holder: Holder = MATRIX) -> dict[str, Any]:
    """All that is in a table."""
    with SequentialTableReader(rspecifier, holder) as reader:
        return dict(reader)
