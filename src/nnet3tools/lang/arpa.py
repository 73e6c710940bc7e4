"""Language models in the ARPA form, converted to acceptors of words (Kaldi's arpa2fst).

A state is a history. A back-off arc reads the disambiguation symbol, writes nothing, and leads to
the longest shorter history that the model has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nnet3tools.errors import DataError, naming
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.fst.fst import EPSILON, NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.local_epsilon import remove_epsilons_locally
from nnet3tools.io import log
from nnet3tools.io.memory import lack_of_memory
from nnet3tools.number_text import parse_double, parse_int

_COUNT = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)\s*")
_MOST_ORDERS = 100
_MOST_OTHER_LINES = 1_000_000  # without an n-gram: a pipe may have no end
_LEAST_BYTES = 100  # of memory for an n-gram


@dataclass(frozen=True)
class ArpaOptions:
    """Numbers of words and special symbols for converting an ARPA language model to an FST.

    An n-gram with a word outside `words` is skipped. If `adds_words`, its words are added to
    `words` instead, whose numbers must begin with 0 and have no gaps. If `disambig`, the number of
    the disambiguation symbol, is not 0, the symbols for the begin and end of a sentence are not
    words of the FST. If it is 0, they are words, and back-off arcs read nothing.
    """

    words: dict[str, int]
    begin: int
    end: int
    disambig: int
    max_warnings: int = 30
    adds_words: bool = False


@dataclass
class _NGram:
    words: tuple[int, ...]
    cost: float
    backoff_cost: float


def _natural_cost(text: str) -> float:
    """The cost, -ln(probability) in float32, for the log10 probability `text` in an ARPA file."""
    if (number := parse_double(text)) is None or math.isnan(number):
        raise ValueError
    value = np.float32(number)
    return -float(np.float32(float(value) * math.log(10.0)))


@dataclass
class _Parser:
    """Reads the lines of an ARPA file; `place` is the number of the current line, from 1."""

    lines: Iterator[str]
    options: ArpaOptions
    line: str = ""
    place: int = 0
    num_warnings: int = 0
    _last_ngram: int = 0
    _again: bool = False
    """Whether the next line is the current one again."""

    def error(self, message: str) -> DataError:
        """Make a DataError that quotes the current line."""
        return DataError(f"line {self.place} [{self.line[:80]}]: {message}")

    def warn(self, message: str) -> None:
        """Log a warning about the current line, up to `max_warnings` times."""
        self.num_warnings += 1
        if self.num_warnings <= self.options.max_warnings:
            log.warning(f"line {self.place} [{self.line}] {message}")

    def _next_line(self) -> str | None:
        """The next line that is not blank, stripped; None at the end of the file."""
        if self._again:
            self._again = False
            return self.line.strip()
        for line in self.lines:
            self.line, self.place = line, self.place + 1
            if self.place > self._last_ngram + _MOST_OTHER_LINES:
                raise self.error(f"expected n-grams, found {_MOST_OTHER_LINES} other lines")
            if stripped := line.strip():
                return stripped
        return None

    def counts(self) -> list[int]:
        """Read the ARPA file's header; returns the declared number of n-grams of each order."""
        while (line := self._next_line()) != "\\data\\":
            if line is None:
                raise self.error("\\data\\ section missing or empty.")
        log.log("Reading \\data\\ section.")
        counts: list[int] = []
        while (line := self._next_line()) is not None and not line.startswith("\\"):
            match = _COUNT.fullmatch(line)
            order = parse_int(match[1], 1, _MOST_ORDERS) if match else None
            count = parse_int(match[2], 0) if match else None
            if order is None or count is None:
                log.warning(f"line {self.place} [{line}]: uninterpretable line in \\data\\ section")
                continue
            counts += [0] * (order - len(counts))
            counts[order - 1] = count
        if not counts:
            raise self.error("\\data\\ section missing or empty.")
        self._again = line is not None  # ngrams() reads this line
        if lack := lack_of_memory(_LEAST_BYTES * sum(counts)):
            raise self.error(f"{sum(counts)} n-grams need {lack}")
        return counts

    def ngrams(self, counts: Sequence[int]) -> Iterator[tuple[_NGram, bool]]:
        """Yield (n-gram, whether it has the highest order); DataError for malformed lines."""
        for order, promised in enumerate(counts, start=1):
            keyword = f"\\{order}-grams:"
            if self._next_line() != keyword:
                raise self.error(f"invalid directive, expecting '{keyword}'")
            log.log(f"Reading {keyword} section.")
            found = 0
            while (line := self._next_line()) is not None and not line.startswith("\\"):
                found += 1
                if found > promised:
                    raise self.error(
                        f"header said there would be {promised} n-grams of order {order}, but we "
                        "saw more already."
                    )
                self._last_ngram = self.place
                if (ngram := self._ngram(line, order, order == len(counts))) is not None:
                    yield ngram, order == len(counts)
            self._again = line is not None
        if self._next_line() != "\\end\\":
            raise self.error("invalid or unexpected directive line, expecting \\end\\")

    def _ngram(self, line: str, order: int, highest: bool) -> _NGram | None:
        """Parse a line with an n-gram of order `order`; None, after a warning, if it is skipped.

        `highest` says that no n-grams are longer, so that the line has no back-off weight.
        """
        fields = line.split()
        if not order < len(fields) <= order + (1 if highest else 2):
            raise self.error("Invalid n-gram data line")
        try:
            cost = _natural_cost(fields[0])
            backoff = _natural_cost(fields[order + 1]) if len(fields) > order + 1 else 0.0
        except ValueError:
            raise self.error("invalid n-gram logprob or backoff weight") from None
        numbers, words = [], self.options.words
        for word in fields[1 : order + 1]:
            if self.options.adds_words:
                words.setdefault(word, len(words))
            if (number := words.get(word)) is None:
                self.warn(f"skipped: word '{word}' not in symbol table")
                return None
            if number in (EPSILON, self.options.disambig):
                raise self.error(f"epsilon or disambiguation symbol '{word}' is illegal in ARPA LM")
            numbers.append(number)
        if self.options.begin in numbers[1:] or self.options.end in numbers[:-1]:
            self.warn("skipped: n-gram has invalid BOS/EOS placement")
            return None
        return _NGram(tuple(numbers), cost, backoff)


@dataclass
class _Compiler:
    """Builds the acceptor of an ARPA model; each state is a history, state 0 the empty history."""

    options: ArpaOptions
    arcs: list[list[ArcTuple]] = field(default_factory=lambda: [[]])
    finals: list[float] = field(default_factory=lambda: [NOT_FINAL])
    states: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})
    start: int = -1

    def __post_init__(self) -> None:
        if not self.options.disambig:
            self._end = self._new_state()
            self.finals[self._end] = 0.0

    def _new_state(self) -> int:
        self.arcs.append([])
        self.finals.append(NOT_FINAL)
        return len(self.arcs) - 1

    def add(self, ngram: _NGram, highest: bool) -> bool:
        """Add an n-gram as an arc or final weight; returns False if the model lacks its history.

        `highest` says that the n-gram has the highest order; its arc leads to a shorter history.
        """
        if (source := self.states.get(ngram.words[:-1])) is None:
            return False
        word, cost, options = ngram.words[-1], ngram.cost, self.options
        if word == options.end:
            if options.disambig:
                self.finals[source] = cost
                return True
            target = self._end
        else:
            target = self._state_of(ngram.words[int(highest) :], ngram.backoff_cost)
        if word == options.begin:
            if options.disambig:
                self.start = target
                return True
            source = self.start = self._new_state()
            cost = 0.0
        self.arcs[source].append((word, word, cost, target))
        return True

    def _state_of(self, history: tuple[int, ...], backoff_cost: float) -> int:
        if (state := self.states.get(history)) is None:
            state = self.states[history] = self._new_state()
            shorter = history[1:]
            while shorter not in self.states:
                shorter = shorter[1:]
            self.arcs[state].append(
                (self.options.disambig, EPSILON, backoff_cost, self.states[shorter])
            )
        return state

    def fst(self) -> Fst:
        """The finished acceptor, without states whose only arc is a back-off arc."""
        if self.start < 0:
            raise DataError("Arpa file did not contain the beginning-of-sentence symbol.")
        disambig = self.options.disambig
        if not disambig:
            return Fst.from_lists(self.start, self.finals, self.arcs)
        for state, arcs in enumerate(self.arcs):
            if len(arcs) == 1 and self.finals[state] == NOT_FINAL and arcs[0][0] == disambig:
                arcs[0] = (EPSILON, *arcs[0][1:])
        fst = remove_epsilons_locally(Fst.from_lists(self.start, self.finals, self.arcs))
        log.log(f"Reduced num-states from {len(self.arcs)} to {fst.num_states}")
        return fst


def arpa_fst(lines: Iterable[str], options: ArpaOptions, name: str) -> Fst:
    """Make the word acceptor of an ARPA file's lines; `name` begins the error messages."""
    compiler = _Compiler(options)
    parser = _Parser(iter(lines), options)
    with naming(name):
        for ngram, highest in parser.ngrams(parser.counts()):
            if not compiler.add(ngram, highest):
                parser.warn("skipped: no parent (n-1)-gram exists")
        return compiler.fst()
