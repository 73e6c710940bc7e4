"""Back-off n-gram models: ARPA files, and the perplexity of text."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.files import read_text_lines
from nnet3tools.number_text import parse_int

BEGIN, END = "<s>", "</s>"
BEGIN_NUMBER, END_NUMBER = 0, 1
ABSENT = -1
"""The number of words and n-grams that a model does not have."""


def read_sentences(rxfilename: str, with_keys: bool = False) -> list[list[str]]:
    """Read sentences, one in each line, without <s> and </s>; blank lines are skipped.

    With `with_keys` the first word of each line is the key of an utterance, as in Kaldi's text.
    """
    sentences = []
    for number, line in enumerate(read_text_lines(rxfilename), start=1):
        if "\udc80" <= max(line, default="") <= "\udcff":
            raise DataError(f"{rxfilename}:{number}: expected UTF-8, found other bytes")
        words = line.split()[int(with_keys) :]
        words = words[words[:1] == [BEGIN] : len(words) - (words[-1:] == [END])]
        if BEGIN in words or END in words:
            raise DataError(f"{rxfilename}:{number}: expected words, found {BEGIN} or {END}")
        if words:
            sentences.append([*map(sys.intern, words)])
    return sentences


def read_vocabulary(rxfilename: str) -> list[str]:
    """Read the words of a symbol table (words.txt) or of a list with one word in each line.

    Symbols that are no words are skipped: <eps>, <s>, </s>, and disambiguation symbols such as #0.
    """
    words = []
    for number, line in enumerate(read_text_lines(rxfilename), start=1):
        fields = line.split()
        if len(fields) > 2 or (len(fields) == 2 and parse_int(fields[1], 0) is None):
            raise DataError(f"{rxfilename}:{number}: expected a word, found '{line[:60]}'")
        words += fields[:1]
    no_words = {"<eps>", BEGIN, END}
    words = [w for w in words if w not in no_words and not re.fullmatch(r"#\d+", w)]
    if not words:
        raise DataError(f"{rxfilename}: expected words, found none")
    return words


@dataclass(frozen=True)
class NumberedText:
    """The word numbers of sentences, with <s> and </s>, and the place of each in its sentence."""

    words: NDArray[np.int64]
    places: NDArray[np.int64]

    @classmethod
    def of(
        cls, sentences: Sequence[Sequence[str]], numbers: dict[str, int], outside: int
    ) -> NumberedText:
        """Number the words of sentences; words that `numbers` lacks become `outside`."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences)) + 2
        ends = np.cumsum(lengths)
        words = np.full(int(lengths.sum()), END_NUMBER, np.int64)
        words[ends - lengths] = BEGIN_NUMBER
        inner = np.ones(len(words), bool)
        inner[ends - lengths] = inner[ends - 1] = False
        found = (numbers.get(word, outside) for word in chain.from_iterable(sentences))
        words[inner] = np.fromiter(found, np.int64, int(inner.sum()))
        return cls(words, np.arange(len(words)) - np.repeat(ends - lengths, lengths))


@dataclass(frozen=True)
class Perplexity:
    """Counts and log-probabilities that measure how well a language model predicts text."""

    num_predicted: int
    """Words and ends of sentences, without unknown words."""
    num_unknown: int
    log10_prob: float
    """Sum over the predicted words and ends of sentences."""

    @property
    def perplexity(self) -> float:
        """The perplexity: 10 to the power of the mean negative log10 probability."""
        return float(10.0 ** (-self.log10_prob / max(self.num_predicted, 1)))

    def __str__(self) -> str:
        return (
            f"{self.perplexity:.6g} over {self.num_predicted} words and ends of sentences, without "
            f"{self.num_unknown} unknown words"
        )


@dataclass(frozen=True)
class NGrams:
    """The n-grams of one order, sorted, with log10 probabilities and back-off weights.

    A key is the index of the history in the next lower order * number of words + last word.
    """

    keys: NDArray[np.int64]
    log10_probs: NDArray[np.float64]
    log10_backoffs: NDArray[np.float64]
    """Back-off weights of the n-grams as histories; 0 for those that are no history."""

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of n-grams, given by key; `ABSENT` for n-grams that the model lacks."""
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, ABSENT)


@dataclass(frozen=True)
class NGramModel:
    """A back-off model: its words, and the n-grams of each order from 1."""

    words: tuple[str, ...]
    """<s>, </s>, then all other words."""
    orders: tuple[NGrams, ...]
    unknown: str
    """The word that stands for all words outside the model."""

    def arpa_lines(self) -> Iterator[str]:
        """Yield the lines of the model's ARPA file."""
        yield "\\data\\"
        for order, ngrams in enumerate(self.orders, start=1):
            yield f"ngram {order}={len(ngrams.keys)}"
        texts: list[str] = []
        for order, ngrams in enumerate(self.orders, start=1):
            yield ""
            yield f"\\{order}-grams:"
            histories, last = np.divmod(ngrams.keys, len(self.words))
            heads = (f"{texts[history]} " if order > 1 else "" for history in histories.tolist())
            texts = [h + self.words[word] for h, word in zip(heads, last.tolist(), strict=True)]
            columns = texts, ngrams.log10_probs.tolist(), ngrams.log10_backoffs.tolist()
            for text, prob, backoff in zip(*columns, strict=True):
                yield f"{prob:.7g}\t{text}" + (f"\t{backoff:.7g}" if backoff else "")
        yield ""
        yield "\\end\\"

    def perplexity(self, sentences: Iterable[Sequence[str]]) -> Perplexity:
        """Measure the perplexity of the model on sentences."""
        numbers = {word: number for number, word in enumerate(self.words)}
        outside = numbers.get(self.unknown, ABSENT)
        text = NumberedText.of([*sentences], numbers, outside)
        predicted = text.places > 0
        known = predicted & (text.words != outside)
        total = float(self._log10_probs(text)[known].sum())
        return Perplexity(int(known.sum()), int((predicted & ~known).sum()), total)

    def _log10_probs(self, text: NumberedText) -> NDArray[np.float64]:
        """The log10 probability of each word and sentence end, given the words before it."""
        numbers = self.orders[0].find(text.words)
        result = np.where(numbers >= 0, self.orders[0].log10_probs[numbers], 0.0)
        for lower, higher in zip(self.orders[:-1], self.orders[1:], strict=True):
            histories = np.concatenate(([ABSENT], numbers[:-1]))
            histories[text.places == 0] = ABSENT
            backoffs = np.where(histories >= 0, lower.log10_backoffs[histories], 0.0)
            known = (histories >= 0) & (text.words >= 0)
            keys = np.where(known, histories * len(self.words) + text.words, ABSENT)
            numbers = higher.find(keys)
            result = np.where(numbers >= 0, higher.log10_probs[numbers], result + backoffs)
        return result
