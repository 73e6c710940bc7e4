"""Probabilities of pronunciations: how training utterances were said, by their alignments.

Relative to the most frequent pronunciation of its word, a pronunciation is as probable as it was
said. A language model of equally likely words cannot choose between words that sound alike ("O",
"OH"), so the rarer ones of them get less, by how often they occur. All counts have one added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.lang.dictionary import Dictionary
from nnet3tools.lang.lexicon import Pronunciation
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.recipe.data_dir import read_lines
from nnet3tools.recipe.own_data.pronunciations import write_dictionary
from nnet3tools.recipe.speech.setup import DICT, LANG, PHONES_SAID, SAID, Setup, read_table

LEAST = 1e-4
"""The least probability: no pronunciation may become impossible."""
Phones = tuple[str, ...]
Said = tuple[str, Phones, bool]
"""A word, its phones, and whether silence followed."""


def pronunciations_said(
    words: Sequence[str],
    phones: Sequence[str],
    pronunciations: Mapping[str, Sequence[Phones]],
    silence: str,
) -> list[Said] | None:
    """Find each word's pronunciation in an alignment: (word, phones, whether silence follows).

    `phones` are those of the alignment. None if they are not pronunciations of the words.
    """
    reached: list[dict[int, tuple[int, Phones, bool]]] = []
    places = [int(list(phones[:1]) == [silence])]
    for word in words:
        found: dict[int, tuple[int, Phones, bool]] = {}
        for place in places:
            for said in pronunciations.get(word, ()):
                end = place + len(said)
                if tuple(phones[place:end]) == said:
                    has_pause = list(phones[end : end + 1]) == [silence]
                    found.setdefault(end + has_pause, (place, said, has_pause))
        reached.append(found)
        places = list(found)
    end = len(phones)
    if end not in places:
        return None
    rows: list[Said] = []
    for word, found in zip(reversed(words), reversed(reached), strict=True):
        end, said, has_pause = found[end]
        rows.append((word, said, has_pause))
    return rows[::-1]


def weighted(
    lexicon: Sequence[Pronunciation], counts: Counter[tuple[str, Phones]]
) -> list[Pronunciation]:
    """The lexicon, its probabilities times those estimated from `counts` of (word, phones)."""
    of_words: Counter[str] = Counter()
    for (word, _), count in counts.items():
        of_words[word] += count
    most_alike: Counter[Phones] = Counter()
    most_said: Counter[str] = Counter()
    for entry in lexicon:
        most_alike[entry.phones] = max(most_alike[entry.phones], of_words[entry.word])
        most_said[entry.word] = max(most_said[entry.word], counts[entry.word, entry.phones])
    found = []
    for entry in lexicon:
        alike = (of_words[entry.word] + 1) / (most_alike[entry.phones] + 1)
        said = (counts[entry.word, entry.phones] + 1) / (most_said[entry.word] + 1)
        found.append(replace(entry, probability=max(entry.probability * alike * said, LEAST)))
    return found


def write_dictionary_as_said(setup: Setup) -> None:
    """Write to `SAID` the dictionary with probabilities counted in alignments; log the counts."""
    dictionary = Dictionary.load(str(DICT))
    pronunciations: dict[str, list[Phones]] = {}
    for entry in dictionary.lexicon:
        pronunciations.setdefault(entry.word, []).append(entry.phones)
    numbers = SymbolTable.load(str(LANG / "phones.txt")).numbers
    names = {str(number): name for name, number in numbers.items()}
    words_of = read_table(setup.second_data / "text")
    counts: Counter[tuple[str, Phones]] = Counter()
    num_pauses = num_boundaries = num_unclear = 0
    for line in read_lines(PHONES_SAID):
        key, *phones = line.split()
        unknown = setup.facts.unknown_word
        words = [word if word in pronunciations else unknown for word in words_of[key]]
        said = [names[phone] for phone in phones]
        rows = pronunciations_said(words, said, pronunciations, dictionary.optional_silence)
        if rows is None:
            num_unclear += 1
            continue
        counts.update((word, found) for word, found, _ in rows)
        num_pauses += sum(pause for _, _, pause in rows[:-1])
        num_boundaries += max(len(rows) - 1, 0)
    write_dictionary(SAID, replace(dictionary, lexicon=(*weighted(dictionary.lexicon, counts),)))
    share = num_pauses / max(num_boundaries, 1)
    log.log(f"Silence at {share:.3f} of {num_boundaries} places between words; the "
            f"pronunciations of {num_unclear} utterances are unclear")  # fmt: skip
