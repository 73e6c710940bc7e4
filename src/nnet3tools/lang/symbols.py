"""Symbol tables: lines of a symbol and its number (phones.txt, words.txt)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.files import open_output, read_text_lines
from nnet3tools.number_text import parse_counts, parse_int


@dataclass(frozen=True)
class SymbolTable:
    """The numbers of symbols, by symbol; `name` is the file name for error messages."""

    numbers: dict[str, int]
    name: str = "the symbol table"

    @classmethod
    def of(cls, symbols: Iterable[str]) -> SymbolTable:
        """Make a table of the given symbols, numbered from 0."""
        return cls({symbol: number for number, symbol in enumerate(symbols)})

    @classmethod
    def load(cls, rxfilename: str) -> SymbolTable:
        """Read a symbol table; DataError for a malformed line or a repeated symbol."""
        numbers: dict[str, int] = {}
        for place, line in enumerate(read_text_lines(rxfilename), start=1):
            if not (words := line.split()):
                continue
            number = parse_int(words[1], 0) if len(words) == 2 else None
            if number is None:
                raise DataError(
                    f"{rxfilename}:{place}: expected a symbol and its number, found '{line[:60]}'"
                )
            if words[0] in numbers:
                raise DataError(f"{rxfilename}:{place}: symbol '{words[0]}' is there twice")
            numbers[words[0]] = number
        return cls(numbers, rxfilename)

    def save(self, wxfilename: str) -> None:
        """Write the symbol table to a file."""
        with open_output(wxfilename, binary=False) as writer:
            writer.write_text("".join(f"{s} {n}\n" for s, n in self.numbers.items()))

    def with_symbols(self, symbols: Iterable[str]) -> SymbolTable:
        """A copy with `symbols` added, numbered after the largest number."""
        numbers = dict(self.numbers)
        after = max(numbers.values(), default=-1) + 1
        for symbol in symbols:
            if symbol not in numbers:
                numbers[symbol], after = after, after + 1
        return SymbolTable(numbers, self.name)

    @cached_property
    def symbols(self) -> dict[int, str]:
        """Symbols by number; if several symbols have one number, the last of them."""
        return {number: symbol for symbol, number in self.numbers.items()}

    def number(self, symbol: str) -> int:
        """The number of a symbol; DataError if the table lacks it."""
        if (number := self.numbers.get(symbol)) is None:
            raise DataError(f"symbol '{symbol}' is not in {self.name}")
        return number

    def sequence(self, symbols: Sequence[str], unknown: int | None = None) -> list[int]:
        """The numbers of symbols; a missing one becomes `unknown` or, if None, a DataError."""
        if unknown is None:
            return [self.number(symbol) for symbol in symbols]
        return [self.numbers.get(symbol, unknown) for symbol in symbols]


def read_numbers(rxfilename: str) -> list[int]:
    """Read a file with one number per line, such as disambig.int; DataError for other lines."""
    numbers = []
    for place, line in enumerate(read_text_lines(rxfilename), start=1):
        if (number := parse_int(line, 0)) is None:
            raise DataError(f"{rxfilename}:{place}: expected a number, found '{line[:60]}'")
        numbers.append(number)
    return numbers


def read_sets(rxfilename: str) -> list[list[int]]:
    """Read sets of numbers, one set per line, such as sets.int; DataError for malformed lines."""
    sets = []
    for place, line in enumerate(read_text_lines(rxfilename), start=1):
        numbers = parse_counts(line.split())
        if not numbers or len({*numbers}) < len(numbers):
            raise DataError(
                f"{rxfilename}:{place}: expected numbers of phones, each once, found '{line[:60]}'"
            )
        sets.append(numbers)
    return sets
