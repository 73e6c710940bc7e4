"""Phones of transcripts, for phone language models and counts (Kaldi's text_to_phones.py).

Silence is inserted at random, with Python's random numbers, as in Kaldi's script.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.files import read_text_lines

_MOST_WARNINGS = 20


def load_align_lexicon(rxfilename: str) -> dict[str, list[str]]:
    """Read align_lexicon.txt: the phones of each word (its last pronunciation in the file)."""
    lexicon = {}
    for number, line in enumerate(read_text_lines(rxfilename), start=1):
        word, *rest = line.split() or [""]
        if len(rest) < 2:
            raise DataError(
                f"{rxfilename}:{number}: expected a word twice and its phones, found '{line[:60]}'"
            )
        lexicon[word] = rest[1:]
    return lexicon


def only_word(rxfilename: str) -> str:
    """Read the word in a file such as oov.txt; DataError unless the file has exactly one."""
    words = " ".join(read_text_lines(rxfilename)).split()
    if len(words) != 1:
        raise DataError(f"{rxfilename}: expected one word, found {len(words)}")
    return words[0]


@dataclass
class TextToPhones:
    """Converts words to phones; words outside the lexicon are replaced by `oov`.

    `random` inserts `silence` with probability `edge_silprob` at each end, else `between_silprob`.
    """

    lexicon: Mapping[str, Sequence[str]]
    silence: str
    oov: str
    edge_silprob: float
    between_silprob: float
    random: random.Random
    num_words: int = 0
    num_unknown: int = 0

    def phones(self, words: Sequence[str]) -> list[str]:
        """The phones of `words`; silence is inserted at random between words and at both ends."""
        found = self._silence(self.edge_silprob)
        for place, word in enumerate(words):
            found += self._of_word(word)
            last = place == len(words) - 1
            found += self._silence(self.edge_silprob if last else self.between_silprob)
        return found

    def _silence(self, probability: float) -> list[str]:
        return [self.silence] if self.random.random() < probability else []

    def _of_word(self, word: str) -> Sequence[str]:
        self.num_words += 1
        if word in self.lexicon:
            return self.lexicon[word]
        self.num_unknown += 1
        if self.num_unknown < _MOST_WARNINGS:
            log.write(f"{word} not found in lexicon, replacing with {self.oov}")
        elif self.num_unknown == _MOST_WARNINGS:
            log.write("Not warning about OOVs any more.")
        if self.oov not in self.lexicon:
            raise DataError(f"the word for unknown words, '{self.oov}', is not in the lexicon")
        return self.lexicon[self.oov]


class PhoneStatistics:
    """Counts of phones and phone pairs; the phones of one set are counted as one phone."""

    def __init__(self, sets: Sequence[Sequence[int]]) -> None:
        self._phones = [phone for phones in sets for phone in phones]
        self._first = {phone: phones[0] for phones in sets for phone in phones}
        self._counts: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()

    def add(self, phones: Sequence[int]) -> None:
        """Count the phones and pairs of an utterance; phone 0 stands before its first phone."""
        for phone in phones:
            if phone not in self._first:
                raise DataError(f"phone {phone} is in none of the sets of phones")
        shared = [0, *(self._first[phone] for phone in phones)]
        self._pairs.update(pairwise(shared))
        self._counts.update(shared[1:])

    def lines(self) -> list[str]:
        """The counts above 0 as text lines: `left-phone phone count`, then `phone count`."""
        first = {0: 0, **self._first}
        lines = []
        for left in [0, *self._phones]:
            for phone in self._phones:
                if count := self._pairs[first[left], first[phone]]:
                    lines.append(f"{left} {phone} {count}")
        for phone in self._phones:
            if count := self._counts[first[phone]]:
                lines.append(f"{phone} {count}")
        return lines
