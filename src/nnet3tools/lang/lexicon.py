"""Pronunciation lexicons: their files, disambiguation symbols, and FSTs from phones to words.

They are equal to those of Kaldi's add_lex_disambig.pl and make_lexicon_fst.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.fst.fst import EPSILON, NOT_FINAL, ArcTuple, Fst
from nnet3tools.io.files import read_text_lines
from nnet3tools.number_text import parse_double


@dataclass(frozen=True)
class Pronunciation:
    """A word, the phones of one pronunciation, and the probability of this pronunciation."""

    word: str
    phones: tuple[str, ...]
    probability: float = 1.0


def read_lexicon(rxfilename: str, with_probabilities: bool) -> list[Pronunciation]:
    """Read lexicon lines: a word, a probability if `with_probabilities`, and phones."""
    found = []
    for number, line in enumerate(read_text_lines(rxfilename), start=1):
        fields = line.split()
        where = f"{rxfilename}:{number}"
        if not fields:
            raise DataError(f"{where}: expected a word and its phones, found an empty line")
        word, phones, probability = fields[0], fields[1:], 1.0
        if word in ("<eps>", "<s>", "</s>", "#0"):
            raise DataError(f"{where}: '{word}' cannot be a word of the lexicon")
        if with_probabilities:
            share = parse_double(phones[0]) if phones else None
            if share is None:
                raise DataError(f"{where}: expected a probability after '{word}'")
            phones, probability = phones[1:], share
            if not 0.0 < probability <= 1.0:
                raise DataError(f"{where}: probability {probability:g} is not above 0 and up to 1")
        if not phones:
            raise DataError(f"{where}: word '{word}' has no phones")
        found.append(Pronunciation(word, tuple(phones), probability))
    if not found:
        raise DataError(f"{rxfilename}: expected pronunciations, found none")
    return found


def with_disambiguation(lexicon: Sequence[Pronunciation]) -> tuple[list[Pronunciation], int]:
    """The lexicon with disambiguation symbols #1, #2, ... added, and the largest number used.

    A symbol follows phones that several words have, or that are the beginning of a longer
    pronunciation. Afterwards no pronunciation equals another, or is the beginning of another.
    """
    counts = Counter(entry.phones for entry in lexicon)
    beginnings = {entry.phones[:size] for entry in lexicon for size in range(len(entry.phones))}
    used: Counter[tuple[str, ...]] = Counter()
    found = []
    for entry in lexicon:
        if counts[entry.phones] > 1 or entry.phones in beginnings:
            used[entry.phones] += 1
            entry = replace(entry, phones=(*entry.phones, f"#{used[entry.phones]}"))
        found.append(entry)
    return found, max(used.values(), default=0)


@dataclass(frozen=True)
class OptionalSilence:
    """The silence phone that may stand between words and at both ends, with its probability.

    The symbol `disambig`, if there is one, follows the silence.
    """

    phone: str
    probability: float
    disambig: str = ""


def lexicon_fst(
    lexicon: Sequence[Pronunciation],
    silence: OptionalSilence,
    phone_numbers: Mapping[str, int],
    word_numbers: Mapping[str, int],
) -> Fst:
    """Make the FST that reads phones and writes words; arcs are in the order of the lexicon."""
    return _Builder(phone_numbers, word_numbers).fst(lexicon, silence)


class _Builder:
    def __init__(self, phones: Mapping[str, int], words: Mapping[str, int]) -> None:
        self._phones, self._words = phones, words
        self._arcs: list[list[ArcTuple]] = []

    def _new_state(self) -> int:
        self._arcs.append([])
        return len(self._arcs) - 1

    def _phone(self, phone: str, word: str = "") -> int:
        if (number := self._phones.get(phone)) is None:
            of_word = f", of word '{word}'," if word else ""
            raise DataError(f"phone '{phone}'{of_word} is none of the phones of the dictionary")
        return number

    def _add_word(
        self, entry: Pronunciation, start: int, ends: Sequence[tuple[int, float]]
    ) -> None:
        """Add a pronunciation's path from `start`; its last arcs lead to (state, cost) `ends`."""
        cost, label, state = -math.log(entry.probability), self._words[entry.word], start
        for phone in entry.phones[:-1]:
            after = self._new_state()
            self._arcs[state].append((self._phone(phone, entry.word), label, cost, after))
            cost, label, state = 0.0, EPSILON, after
        last = self._phone(entry.phones[-1], entry.word)
        for target, end_cost in ends:
            self._arcs[state].append((last, label, end_cost + cost, target))

    def fst(self, lexicon: Sequence[Pronunciation], silence: OptionalSilence) -> Fst:
        start = loop = self._new_state()
        ends = [(loop, 0.0)]
        if silence.probability:
            loop, before = self._new_state(), self._new_state()
            ends = [
                (loop, -math.log(1.0 - silence.probability)),
                (before, -math.log(silence.probability)),
            ]
            self._arcs[start] += [(EPSILON, EPSILON, cost, target) for target, cost in ends]
            after = self._new_state() if silence.disambig else loop
            self._arcs[before].append((self._phone(silence.phone), EPSILON, 0.0, after))
            if silence.disambig:
                self._arcs[after].append((self._phone(silence.disambig), EPSILON, 0.0, loop))
        for entry in lexicon:
            self._add_word(entry, loop, ends)
        finals = [NOT_FINAL] * len(self._arcs)
        finals[loop] = 0.0
        return Fst.from_lists(start, finals, self._arcs)
