"""Pronunciations of words: the user's dictionary, or letters as phones.

Both write the dictionary folder that nnet3-prepare-lang reads.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from nnet3tools.errors import DataError, quoted
from nnet3tools.io.files import open_output
from nnet3tools.lang.dictionary import Dictionary
from nnet3tools.lang.lexicon import Pronunciation
from nnet3tools.recipe.own_data.faults import Fault, FaultList

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


def is_punctuation(char: str) -> bool:
    """Whether a character is not pronounced: punctuation, blanks, control characters."""
    return unicodedata.category(char)[0] in "PCZ" and char not in _SPOKEN_SIGNS


def without_punctuation(word: str) -> str:
    """The word without punctuation at both ends, in Unicode's composed form (NFC)."""
    word = unicodedata.normalize("NFC", word)
    pronounced = [place for place, char in enumerate(word) if not is_punctuation(char)]
    return word[pronounced[0] : pronounced[-1] + 1] if pronounced else ""


@dataclass(frozen=True)
class Letters:
    """Letters as phones, as in Kaldi's character recipes; words in <> or [] are noises."""

    unknown_word: str = _UNKNOWN_WORDS[0]
    """The word for unknown words; the dictionary folder has it."""

    def normalized(self, word: str) -> str:
        """A word of a transcript without punctuation at both ends; "" for mere punctuation."""
        return word if _NO_SPEECH.fullmatch(word) else without_punctuation(word)

    def phones(self, word: str) -> tuple[str, ...]:
        """The letters, digits and signs of a word; punctuation within it has no phone."""
        if _NO_SPEECH.fullmatch(word):
            return (SPOKEN_NOISE,)
        return tuple(char for char in word if not is_punctuation(char))

    def num_phones(self, word: str) -> int:
        """The number of letters of the word."""
        return len(self.phones(word))

    def nearest(self, word: str) -> str:
        """Always "": any word with letters is known."""
        return ""

    def write(self, folder: Path, words: Iterable[str]) -> None:
        """Write the dictionary folder for the `words`."""
        spelled = [Pronunciation(word, self.phones(word)) for word in sorted(set(words))]
        _write_dictionary(folder, _dictionary(spelled, str.casefold))


@dataclass(frozen=True)
class Lexicon:
    """The user's dictionary, with the methods of `Letters`."""

    dictionary: Dictionary

    @cached_property
    def _num_phones(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in self.dictionary.lexicon:
            size = len(entry.phones)
            found[entry.word] = min(size, found.get(entry.word, size))
        return found

    @property
    def unknown_word(self) -> str:
        """The dictionary's word for unknown words."""
        return next(word for word in _UNKNOWN_WORDS if word in self._num_phones)

    def normalized(self, word: str) -> str:
        """The word itself if the dictionary has it, or else without punctuation at both ends.

        A word that the dictionary lacks in both forms stays as it is.
        """
        if word in self._num_phones:
            return word
        bare = without_punctuation(word)
        return bare if not bare or bare in self._num_phones else word

    def num_phones(self, word: str) -> int:
        """The number of phones in the word's shortest pronunciation; 0 if it has none."""
        return self._num_phones.get(word, 0)

    def nearest(self, word: str) -> str:
        """The text ` (did you mean 'x'?)` with the most similar word, or ""."""
        from nnet3tools.nnet.config import nearest_hint

        # Only words that can be similar: difflib takes a second for 100,000 words.
        folded = word.casefold()
        ends = {folded[:1], folded[-1:]}
        similar = (
            other
            for other in self._num_phones
            if abs(len(other) - len(word)) <= 2
            and ends & {other[:1].casefold(), other[-1:].casefold()}
        )
        by_folded = {other.casefold(): other for other in similar}
        if folded in by_folded:
            return f" (did you mean '{by_folded[folded]}'?)"
        return nearest_hint(word, by_folded.values())

    def write(self, folder: Path, words: Iterable[str]) -> None:
        """Write the dictionary folder with all of the dictionary's words."""
        _write_dictionary(folder, self.dictionary)


WordList: TypeAlias = Lexicon | Letters
"""Words with pronunciations."""


def read_word_list(lexicon: str, faults: FaultList) -> WordList:
    """Read a lexicon.txt, lexiconp.txt, CMU dictionary or dictionary folder; "" for letters.

    Wrong lines are added to `faults` and left out. DataError if it cannot be read.
    """
    if not lexicon:
        return Letters()
    if Path(lexicon).is_dir():
        dictionary = Dictionary.load(lexicon)
        if not any(entry.word in _UNKNOWN_WORDS for entry in dictionary.lexicon):
            names = ", ".join(_UNKNOWN_WORDS)
            raise DataError(f"{lexicon}: expected a word for unknown words ({names}), found none")
        return Lexicon(dictionary)
    entries = _read_entries(lexicon, faults)
    if not entries:
        raise DataError(f"'{lexicon}': expected lines of a word and its phones, found none")
    return Lexicon(_dictionary(entries, lambda phone: re.sub(r"(?<=\D)\d+$", "", phone)))


def all_words(transcripts: Iterable[Sequence[str]]) -> list[str]:
    """The distinct words of transcripts, sorted."""
    return sorted({word for words in transcripts for word in words})


def _read_entries(path: str, faults: FaultList) -> list[Pronunciation]:
    try:
        lines = Path(path).read_bytes().decode("utf-8-sig", "surrogateescape").split("\n")
    except OSError as error:
        raise DataError(f"cannot read '{path}': {error.strerror}") from None
    split = [line.split(" #")[0].split() for line in lines if not line.startswith(";;;")]
    with_probabilities = all(len(f) > 2 and _is_probability(f[1]) for f in split if f)
    entries: dict[Pronunciation, None] = {}
    for number, line in enumerate(lines, start=1):
        fields = [] if line.startswith(";;;") else line.split(" #")[0].split()
        if not fields:
            continue
        place, first = f"{path}:{number}", 2 if with_probabilities else 1
        word, phones = unicodedata.normalize("NFC", fields[0]), tuple(fields[first:])
        if match := _VARIANT.fullmatch(word):
            word = match[1]
        if any("\ud800" <= char <= "\udfff" for char in line):
            faults.add(Fault.NOT_UTF8, place, quoted(line.encode("utf-8", "replace").decode()))
        elif RESERVED.fullmatch(word) or any(RESERVED.match(phone) for phone in phones):
            faults.add(Fault.MALFORMED, place, f"{quoted(line, 40)}: a reserved word or phone")
        elif not phones:
            faults.add(Fault.MALFORMED, place, f"word '{word[:40]}' without phones")
        else:
            probability = float(fields[1]) if with_probabilities else 1.0
            entries[Pronunciation(word, phones, probability)] = None
    return list(entries)


def _is_probability(text: str) -> bool:
    try:
        return 0.0 < float(text) <= 1.0
    except ValueError:
        return False


def _dictionary(entries: Sequence[Pronunciation], base: Callable[[str], str]) -> Dictionary:
    """The dictionary of pronunciations, with a word for unknown words.

    Phones with one `base`, such as a vowel with and without stress, are one set.
    """
    if not any(entry.word in _UNKNOWN_WORDS for entry in entries):
        entries = [Pronunciation(_UNKNOWN_WORDS[0], (SPOKEN_NOISE,)), *entries]
    spoken = {p for e in entries if not _NO_SPEECH.fullmatch(e.word) for p in e.phones}
    noises = {phone for entry in entries for phone in entry.phones} - spoken
    sets: dict[str, list[str]] = {}
    for phone in sorted(spoken - {SILENCE, SPOKEN_NOISE}):
        sets.setdefault(base(phone), []).append(phone)
    silence = [SILENCE, SPOKEN_NOISE, *sorted(noises - {SILENCE, SPOKEN_NOISE})]
    questions: dict[str, list[str]] = {}
    for phone in sorted(spoken):
        if base(phone) != phone and phone.startswith(base(phone)):
            questions.setdefault(phone[len(base(phone)) :], []).append(phone)
    return Dictionary(
        tuple(entries),
        tuple((phone,) for phone in silence),
        tuple(map(tuple, sets.values())),
        SILENCE,
        tuple(map(tuple, questions.values())),
    )


def _write_dictionary(folder: Path, dictionary: Dictionary) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{e.word} {e.probability:g} {' '.join(e.phones)}" for e in dictionary.lexicon]
    files = {
        "lexiconp.txt": lines,
        "silence_phones.txt": [" ".join(phones) for phones in dictionary.silence],
        "nonsilence_phones.txt": [" ".join(phones) for phones in dictionary.nonsilence],
        "optional_silence.txt": [dictionary.optional_silence],
        "extra_questions.txt": [" ".join(phones) for phones in dictionary.extra_questions],
    }
    for name, contents in files.items():
        with open_output(str(folder / name), binary=False) as writer:
            writer.write_text("".join(f"{line}\n" for line in contents))
