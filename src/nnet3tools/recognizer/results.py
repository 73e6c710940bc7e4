"""Results of a recognizer: words with times, alternatives, partial results."""

from __future__ import annotations

from nnet3tools.fast_dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """A recognized word; `start` and `end` are in seconds from the start of the sound or stream."""

    text: str
    start: float
    end: float
    confidence: float
    """The probability, from 0 to 1, that the word is right (by minimum Bayes risk)."""


class _Words:
    """Base class of results that consist of words."""

    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The words as one string, separated by spaces."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True)
class Alternative(_Words):
    """One of the n best word sequences; `loglike` is its log-likelihood in the lattice.

    The confidence of its words is set to 1.
    """

    words: tuple[Word, ...]
    loglike: float


@dataclass(frozen=True)
class Result(_Words):
    """The result for an utterance from `start` to `end` (seconds from the start of the sound).

    `alternatives` are the best word sequences, the best first, if they were requested.
    """

    words: tuple[Word, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    start: float = 0.0
    end: float = 0.0


@dataclass(frozen=True)
class Partial:
    """The words of an unfinished utterance, from the best path so far."""

    text: str = ""
    """The words with a space between them."""
    words: tuple[Word, ...] = ()
    """If they were requested: the words with their times; the confidences are 1."""
