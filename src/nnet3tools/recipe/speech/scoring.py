"""Word errors of recognized text, with what was confused with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

WordPair = tuple[str, str]
"""A word that was said and what was recognized for it; "" where there is none."""


def aligned(said: Sequence[str], recognized: Sequence[str]) -> list[WordPair]:
    """An alignment of two word sequences with the fewest errors."""
    costs = [list(range(len(recognized) + 1))]
    for word in said:
        row = [costs[-1][0] + 1]
        for j, other in enumerate(recognized):
            row.append(min(costs[-1][j] + (word != other), costs[-1][j + 1] + 1, row[j] + 1))
        costs.append(row)
    pairs = []
    i, j = len(said), len(recognized)
    while i or j:
        if i and j and costs[i][j] == costs[i - 1][j - 1] + (said[i - 1] != recognized[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((said[i], recognized[j]))
        elif i and costs[i][j] == costs[i - 1][j] + 1:
            i -= 1
            pairs.append((said[i], ""))
        else:
            j -= 1
            pairs.append(("", recognized[j]))
    return pairs[::-1]


@dataclass(frozen=True)
class Scores:
    """The alignments of utterances with what was recognized; `pairs` is by utterance."""

    pairs: dict[str, list[WordPair]]

    @classmethod
    def of(cls, said: Mapping[str, Sequence[str]], text: Mapping[str, Sequence[str]]) -> Scores:
        """Scores of the recognized `text`; utterances without text have no words recognized."""
        return cls({key: aligned(words, text.get(key, ())) for key, words in said.items()})

    @cached_property
    def errors(self) -> dict[str, int]:
        """The number of errors by utterance."""
        return {key: sum(a != b for a, b in pairs) for key, pairs in self.pairs.items()}

    @cached_property
    def confusions(self) -> Counter[WordPair]:
        """How often each wrong pair occurs."""
        return Counter(p for pairs in self.pairs.values() for p in pairs if p[0] != p[1])

    @cached_property
    def num_errors(self) -> int:
        """The number of all errors."""
        return sum(self.errors.values())

    @cached_property
    def num_words(self) -> int:
        """The number of words that were said."""
        return sum(bool(said) for pairs in self.pairs.values() for said, _ in pairs)

    @property
    def percent(self) -> float:
        """The word error rate in percent."""
        return 100.0 * self.num_errors / max(self.num_words, 1)

    def worst(self, count: int) -> list[str]:
        """The utterances with most errors, at most `count`; none without errors."""
        order = sorted(self.errors, key=lambda key: (-self.errors[key], key))
        return [key for key in order[:count] if self.errors[key]]
