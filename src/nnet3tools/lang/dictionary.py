"""Dictionaries that users write: a lexicon and lists of phones (Kaldi's data/local/dict)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io import log
from nnet3tools.io.checked import exists
from nnet3tools.io.files import read_text_lines
from nnet3tools.lang.lexicon import Pronunciation, read_lexicon

PhoneSets = tuple[tuple[str, ...], ...]
"""Sets of phones, one for each line; the phones of a set share pdfs and questions."""

_POSITIONS = ("_B", "_E", "_I", "_S")


@dataclass(frozen=True)
class Dictionary:
    """The contents of a dictionary folder: pronunciations and phone lists."""

    lexicon: tuple[Pronunciation, ...]
    silence: PhoneSets
    nonsilence: PhoneSets
    optional_silence: str
    extra_questions: PhoneSets

    @classmethod
    def load(cls, folder: str) -> Dictionary:
        """Read a dictionary folder; DataError if its lexicon and its phone lists disagree."""
        if exists(os.path.join(folder, "lexiconp_silprob.txt")):
            log.warning(f"{folder}/lexiconp_silprob.txt is not used: silence is as likely anywhere")
        name = os.path.join(folder, "lexiconp.txt")
        has_probabilities = exists(name)
        lexicon_name = name if has_probabilities else os.path.join(folder, "lexicon.txt")
        lexicon = read_lexicon(lexicon_name, has_probabilities)
        silence = _phone_sets(folder, "silence_phones.txt")
        nonsilence = _phone_sets(folder, "nonsilence_phones.txt")
        optional = _phone_sets(folder, "optional_silence.txt")
        questions: PhoneSets = ()
        if (Path(folder) / "extra_questions.txt").exists():
            questions = _phone_sets(folder, "extra_questions.txt", may_be_empty=True)
        known = [phone for phones in (*silence, *nonsilence) for phone in phones]
        if len(set(known)) < len(known):
            twice = next(phone for phone in known if known.count(phone) > 1)
            raise DataError(f"{folder}: phone '{twice}' is in the lists of phones twice")
        for entry in lexicon:
            for phone in entry.phones:
                if phone not in known:
                    raise DataError(
                        f"{lexicon_name}: phone '{phone}' of word '{entry.word}' is neither in "
                        "silence_phones.txt nor in nonsilence_phones.txt"
                    )
        silent = {phone for phones in silence for phone in phones}
        if [*map(len, optional)] != [1] or optional[0][0] not in silent:
            raise DataError(
                f"{folder}/optional_silence.txt: expected one phone of silence_phones.txt"
            )
        return cls(tuple(lexicon), silence, nonsilence, optional[0][0], questions)


def _phone_sets(folder: str, name: str, may_be_empty: bool = False) -> PhoneSets:
    path = os.path.join(folder, name)
    sets = tuple(tuple(line.split()) for line in read_text_lines(path) if line.strip())
    if not sets and not may_be_empty:
        raise DataError(f"{path}: expected phones, found none")
    for phones in sets:
        for phone in phones:
            if phone == "<eps>" or phone.startswith("#"):
                raise DataError(f"{path}: '{phone}' cannot be a phone")
    return sets


@dataclass(frozen=True)
class PhoneNames:
    """Makes the phone names of a lang folder: with or without a suffix for the word position."""

    by_position: bool

    def versions(self, phone: str, silence: bool) -> list[str]:
        """The names of a phone, one per word position; for silence, also the name without one."""
        if not self.by_position:
            return [phone]
        suffixes = ("", *_POSITIONS) if silence else _POSITIONS
        return [phone + suffix for suffix in suffixes]

    def expanded(self, sets: Sequence[Sequence[str]], silence: bool) -> list[list[str]]:
        """For each set of phones, all names of them (`versions`); `silence`: of silence phones."""
        return [[v for phone in phones for v in self.versions(phone, silence)] for phones in sets]

    def pronunciation(self, entry: Pronunciation) -> Pronunciation:
        """A copy of `entry` with a suffix on each phone: _B, _I, _E, or _S for a single phone."""
        if not self.by_position:
            return entry
        first, *rest = entry.phones
        if not rest:
            return replace(entry, phones=(first + "_S",))
        between = [phone + "_I" for phone in rest[:-1]]
        return replace(entry, phones=(first + "_B", *between, rest[-1] + "_E"))

    def questions(self, silence: Sequence[str], nonsilence: Sequence[str]) -> list[list[str]]:
        """Sets of phone names for tree questions: all names of one kind with the same suffix."""
        if not self.by_position:
            return []
        of_words = [[phone + suffix for phone in nonsilence] for suffix in _POSITIONS]
        others = [[phone + suffix for phone in silence] for suffix in ("", *_POSITIONS)]
        return of_words + others


def word_position(phone: str) -> str:
    """The word position in a phone's suffix, in the words of word_boundary.txt ("begin" etc.)."""
    names = {"_B": "begin", "_E": "end", "_I": "internal", "_S": "singleton"}
    return names.get(phone[-2:], "nonword")
