"""Estimation of n-gram language models: interpolated modified Kneser-Ney smoothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts held-out text, words and ends of sentences."""

    num_words: int
    """Predicted words, with ends of sentences, without unknown words."""
    num_unknown: int
    log10_prob: float
    """Sum over the predicted words."""

    @property
    def perplexity(self) -> float:
        """10 to the power of the mean negative log10 probability."""
        return 10 ** (-self.log10_prob / max(self.num_words, 1))


class NGramModel:
    """A back-off model: for each order its n-grams, log10 probabilities and back-off weights."""

    def arpa_lines(self) -> Iterable[str]:
        """The lines of the model's ARPA file."""
        raise NotImplementedError

    def perplexity(self, sentences: Iterable[Sequence[str]]) -> Perplexity:
        """Evaluate the model on held-out sentences."""
        raise NotImplementedError


def estimate(
    sentences: Iterable[Sequence[str]],
    order: int,
    vocabulary: Sequence[str] = (),
    unknown: str = "<unk>",
) -> NGramModel:
    """Estimate a model of `order` 1 to 4 from sentences.

    With a vocabulary, other words count as `unknown`, and all words of the vocabulary are in the
    model; n-grams with unknown words are left out if the vocabulary lacks `unknown`.
    """
    raise NotImplementedError
