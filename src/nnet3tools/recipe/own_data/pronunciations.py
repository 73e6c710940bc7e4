"""Pronunciations of words: the user's dictionary, or letters as phones."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.lang.dictionary import Dictionary
from nnet3tools.lang.lexicon import Pronunciation
from nnet3tools.nnet.config import nearest_hint
from nnet3tools.number_text import parse_double
from nnet3tools.recipe.own_data.faults import Fault, FaultList, read_text
from nnet3tools.recipe.plan import write_lines

SILENCE, SPOKEN_NOISE = "SIL", "SPN"
RESERVED = re.compile(r"<eps>|</?s>|#\d+")
"""Words and phones that have another meaning in Kaldi's files."""
_UNKNOWN_WORDS = ("<unk>", "<UNK>", "<SPOKEN_NOISE>", "<spoken_noise>")
_NO_SPEECH = re.compile(r"<.*>|\[.*\]|!SIL")
"""Words for noises: their phones are silence phones."""
_SPOKEN_SIGNS = "%&@§‰"
"""Punctuation by its Unicode category, but spoken as a word."""
_VARIANT = re.compile(r"(.+)\(\d+\)")
"""A further pronunciation in CMU's format: WORD(2)."""


def _is_punctuation(char: str) -> bool:
    """Whether a character is not pronounced: punctuation, blank or control character."""
    return unicodedata.category(char)[0] in "PCZ" and char not in _SPOKEN_SIGNS


def _without_punctuation(word: str) -> str:
    """The word without punctuation at both ends, in Unicode's composed form (NFC)."""
    word = unicodedata.normalize("NFC", word)
    pronounced = [place for place, char in enumerate(word) if not _is_punctuation(char)]
    return word[pronounced[0] : pronounced[-1] + 1] if pronounced else ""


def letters(word: str) -> tuple[str, ...]:
    """Spell a word: letters, digits and signs as phones; words in <> or [] get the noise phone."""
    if _NO_SPEECH.fullmatch(word):
        return (SPOKEN_NOISE,)
    return tuple(char for char in word if not _is_punctuation(char))


@dataclass(frozen=True)
class WordList:
    """Words with pronunciations: the dictionary `given`; if None, words are spelled as letters."""

    given: Dictionary | None = None
    """The user's dictionary; None: letters are phones, as in Kaldi's character recipes."""
    unknown_word: str = _UNKNOWN_WORDS[0]
    """The word for unknown words; the dictionary has it."""
    num_phones_of: dict[str, int] = field(default_factory=dict)
    """The number of phones in the shortest pronunciation of each word of the dictionary."""

    @classmethod
    def of(cls, dictionary: Dictionary, name: str) -> WordList:
        """Make the list of `dictionary`; DataError, with `name`, if no word is for unknown ones."""
        sizes: dict[str, int] = {}
        for entry in dictionary.lexicon:
            sizes[entry.word] = min(len(entry.phones), sizes.get(entry.word, 1 << 20))
        unknown = [word for word in _UNKNOWN_WORDS if word in sizes]
        if not unknown:
            names = ", ".join(_UNKNOWN_WORDS)
            raise DataError(f"{name}: expected a word for unknown words ({names}), found none")
        return cls(dictionary, unknown[0], sizes)

    def normalized(self, word: str) -> str:
        """A transcript word without punctuation at both ends; "" if it is only punctuation.

        A word is unchanged if the dictionary has it with, or lacks it without, its punctuation.
        """
        if word in self.num_phones_of or (self.given is None and _NO_SPEECH.fullmatch(word)):
            return word
        bare = _without_punctuation(word)
        is_known = self.given is None or not bare or bare in self.num_phones_of
        return bare if is_known else word

    def num_phones(self, word: str) -> int:
        """The number of phones in the word's shortest pronunciation; 0 if it has none."""
        return len(letters(word)) if self.given is None else self.num_phones_of.get(word, 0)

    def nearest(self, word: str) -> str:
        """The text ` (did you mean 'x'?)` with the most similar word of the list, or ""."""
        # Only words that can be similar: difflib takes a second for 100,000 words.
        folded = word.casefold()
        by_folded = {
            other.casefold(): other
            for other in self.num_phones_of
            if abs(len(other) - len(word)) <= 2
            and (other[:1].casefold() == folded[:1] or other[-1:].casefold() == folded[-1:])
        }
        if folded in by_folded:
            return f" (did you mean '{by_folded[folded]}'?)"
        return nearest_hint(word, by_folded.values())

    def dictionary(self, words: Iterable[str]) -> Dictionary:
        """The user's complete dictionary or, without one, a dictionary that spells `words`."""
        if self.given is not None:
            return self.given
        spelled = [Pronunciation(word, letters(word)) for word in sorted(set(words))]
        return _dictionary([entry for entry in spelled if entry.phones], str.casefold)


def read_word_list(lexicon: str, faults: FaultList) -> WordList:
    """Read a lexicon.txt, lexiconp.txt, CMU dictionary or dictionary folder; DataError if it fails.

    With "none", words are spelled as letters. Wrong lines are reported in `faults` and skipped.
    """
    if lexicon == "none":
        return WordList()
    if Path(lexicon).is_dir():
        return WordList.of(Dictionary.load(lexicon), lexicon)
    entries = _read_entries(lexicon, faults)
    if not entries:
        raise DataError(f"'{lexicon}': expected lines of a word and its phones, found none")
    without_number = _dictionary(entries, lambda phone: re.sub(r"(?<=\D)\d+$", "", phone))
    return WordList.of(without_number, lexicon)


def _read_entries(path: str, faults: FaultList) -> list[Pronunciation]:
    rows = [
        [] if line.startswith(";;;") else line.split(" #")[0].split()
        for line in read_text(path, faults)
    ]
    with_probabilities = all(len(row) > 2 and _is_probability(row[1]) for row in rows if row)
    entries: dict[Pronunciation, None] = {}
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        place, phones = f"{path}:{number}", tuple(row[1 + with_probabilities :])
        word = _VARIANT.sub(r"\1", unicodedata.normalize("NFC", row[0]))
        if RESERVED.fullmatch(word) or any(RESERVED.match(phone) for phone in phones):
            found = f"{quoted(' '.join(row), 40)}: a reserved word or phone"
            faults.add(Fault.MALFORMED, place, found)
        elif not phones:
            faults.add(Fault.MALFORMED, place, f"word {quoted(word, 40)} without phones")
        else:
            probability = float(row[1]) if with_probabilities else 1.0
            entries[Pronunciation(word, phones, probability)] = None
    return list(entries)


def _is_probability(text: str) -> bool:
    value = parse_double(text)
    return value is not None and 0.0 < value <= 1.0


def _dictionary(entries: Sequence[Pronunciation], base: Callable[[str], str]) -> Dictionary:
    """Make a dictionary of pronunciations, including a word for unknown words.

    Phones with equal `base(phone)`, such as a vowel with and without stress, form one set.
    """
    if not any(entry.word in _UNKNOWN_WORDS for entry in entries):
        entries = [Pronunciation(_UNKNOWN_WORDS[0], (SPOKEN_NOISE,)), *entries]
    spoken = {p for e in entries if not _NO_SPEECH.fullmatch(e.word) for p in e.phones}
    noises = {phone for entry in entries for phone in entry.phones} - spoken
    sets: dict[str, list[str]] = {}
    questions: dict[str, list[str]] = {}
    for phone in sorted(spoken - {SILENCE, SPOKEN_NOISE}):
        sets.setdefault(base(phone), []).append(phone)
        if base(phone) != phone and phone.startswith(base(phone)):
            questions.setdefault(phone[len(base(phone)) :], []).append(phone)
    silence = [SILENCE, SPOKEN_NOISE, *sorted(noises - {SILENCE, SPOKEN_NOISE})]
    return Dictionary(
        tuple(entries),
        tuple((phone,) for phone in silence),
        tuple(map(tuple, sets.values())),
        SILENCE,
        tuple(map(tuple, questions.values())),
    )


def write_dictionary(folder: Path, dictionary: Dictionary) -> None:
    """Write the dictionary folder that nnet3-prepare-lang reads."""
    lines = [f"{e.word} {e.probability:g} {' '.join(e.phones)}" for e in dictionary.lexicon]
    write_lines(folder / "lexiconp.txt", lines)
    for name, sets in (
        ("silence_phones", dictionary.silence),
        ("nonsilence_phones", dictionary.nonsilence),
        ("optional_silence", [(dictionary.optional_silence,)]),
        ("extra_questions", dictionary.extra_questions),
    ):
        write_lines(folder / f"{name}.txt", map(" ".join, sets))
