"""Probabilities of pronunciations: how training utterances were said, by their alignments.

Relative to the most frequent pronunciation of its word, a pronunciation is as probable as it was
said. A language model of equally likely words cannot choose between words that sound alike ("O",
"OH"), so the rarer ones of them get less, by how often they occur. All counts have one added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.recipe.data_dir import read_lines

LEAST = 1e-4
"""The least probability: no pronunciation may become impossible."""

Said = list[tuple[str, tuple[int, ...], bool]]
"""For each word: the word, its phones, and whether silence followed."""


@dataclass(frozen=True)
class NumberedLexicon:
    """Pronunciations as numbers of phones, with the dictionary's probabilities."""

    pronunciations: dict[str, dict[tuple[int, ...], float]]
    names: dict[int, str]
    silence: int

    @classmethod
    def load(cls, lexiconp: Path, phones: Path, silence: str) -> NumberedLexicon:
        """Read lexiconp.txt and a table of phones; DataError for unknown phones."""
        numbers = {name: int(number) for name, number in map(str.split, read_lines(phones))}
        found: dict[str, dict[tuple[int, ...], float]] = {}
        for place, line in enumerate(read_lines(lexiconp), start=1):
            word, probability, *names = line.split()
            if unknown := [name for name in names if name not in numbers]:
                raise DataError(f"{lexiconp}:{place}: there is no phone {unknown[0]} in {phones}")
            key = tuple(numbers[name] for name in names)
            found.setdefault(word, {})[key] = float(probability)
        return cls(found, {n: name for name, n in numbers.items()}, numbers[silence])


def pronunciations_said(
    words: Sequence[str], phones: Sequence[int], lexicon: NumberedLexicon
) -> Said | None:
    """How the words were said; None if the phones of an alignment do not fit them."""
    silence = lexicon.silence
    start = 1 if list(phones[:1]) == [silence] else 0
    reached: list[dict[int, tuple[int, tuple[int, ...], bool]]] = []
    places = [start]
    for word in words:
        found: dict[int, tuple[int, tuple[int, ...], bool]] = {}
        for place in places:
            for said in lexicon.pronunciations.get(word, ()):
                end = place + len(said)
                if tuple(phones[place:end]) == said:
                    has_pause = end < len(phones) and phones[end] == silence
                    found.setdefault(end + has_pause, (place, said, has_pause))
        reached.append(found)
        places = list(found)
    end = len(phones)
    if end not in places:
        return None
    rows: Said = []
    for word, found in zip(reversed(words), reversed(reached), strict=True):
        end, said, has_pause = found[end]
        rows.append((word, said, has_pause))
    return rows[::-1]


def probabilities(
    lexicon: Mapping[str, Mapping[tuple[int, ...], float]],
    counts: Counter[tuple[str, tuple[int, ...]]],
) -> dict[tuple[str, tuple[int, ...]], float]:
    """The probability of each word and pronunciation, times that of the dictionary."""
    of_words: Counter[str] = Counter()
    for (word, _), count in counts.items():
        of_words[word] += count
    most_alike: Counter[tuple[int, ...]] = Counter()
    for word, pronunciations in lexicon.items():
        for phones in pronunciations:
            most_alike[phones] = max(most_alike[phones], of_words[word])
    found = {}
    for word, pronunciations in lexicon.items():
        most = max(counts[word, phones] for phones in pronunciations)
        for phones, given in pronunciations.items():
            alike = (of_words[word] + 1) / (most_alike[phones] + 1)
            found[word, phones] = given * alike * (counts[word, phones] + 1) / (most + 1)
    return found


def weighted_lexicon(
    lexicon: NumberedLexicon, counts: Counter[tuple[str, tuple[int, ...]]]
) -> Iterator[str]:
    """The lines of lexiconp.txt with the probabilities of counted pronunciations."""
    for (word, phones), value in probabilities(lexicon.pronunciations, counts).items():
        names = " ".join(lexicon.names[phone] for phone in phones)
        yield f"{word} {max(value, LEAST):.4f} {names}"
