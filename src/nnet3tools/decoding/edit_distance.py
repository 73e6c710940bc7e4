"""Word errors: the least number of insertions, deletions and substitutions."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.fast_dataclasses import dataclass


@dataclass(frozen=True)
class WordErrors:
    """Numbers of word errors in a hypothesis: insertions, deletions and substitutions."""

    insertions: int = 0
    deletions: int = 0
    substitutions: int = 0

    @property
    def total(self) -> int:
        """Number of all errors."""
        return self.insertions + self.deletions + self.substitutions

    def __add__(self, other: WordErrors) -> WordErrors:
        return WordErrors(
            self.insertions + other.insertions,
            self.deletions + other.deletions,
            self.substitutions + other.substitutions,
        )


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> WordErrors:
    """The smallest counts of errors that explain the hypothesis (Kaldi's LevenshteinEditDistance).

    Among alignments with as many errors, insertions are preferred to deletions, and deletions to
    matches and substitutions, word by word.
    """
    row: list[tuple[int, ...]]
    row = [(n, 0, n, 0) for n in range(len(reference) + 1)]  # total, insertions, deletions, subs
    for said in hypothesis:
        total, insertions, *rest = row[0]
        new: list[tuple[int, ...]] = [(total + 1, insertions + 1, *rest)]
        for place, word in enumerate(reference, start=1):
            above, left, diagonal = row[place], new[-1], row[place - 1]
            wrong = said != word
            if diagonal[0] + wrong < min(above[0], left[0]) + 1:
                total, insertions, deletions, substitutions = diagonal
                new.append((total + wrong, insertions, deletions, substitutions + wrong))
            elif left[0] < above[0]:
                total, insertions, deletions, substitutions = left
                new.append((total + 1, insertions, deletions + 1, substitutions))
            else:
                total, insertions, deletions, substitutions = above
                new.append((total + 1, insertions + 1, deletions, substitutions))
        row = new
    return WordErrors(*row[-1][1:])
