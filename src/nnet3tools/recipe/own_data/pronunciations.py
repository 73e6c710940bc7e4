"""The user's dictionary, or letters as phones; the folder that nnet3-prepare-lang reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nnet3tools.recipe.own_data.faults import FaultList


class WordList(Protocol):
    """Words with pronunciations: a dictionary, or any word that has letters."""

    unknown_word: str
    """The word for unknown words, such as <unk>; it is in the dictionary folder."""

    def normalized(self, word: str) -> str:
        """The form of a transcript's word that the lexicon has; "" for mere punctuation."""

    def num_phones(self, word: str) -> int:
        """The number of phones of the word's shortest pronunciation; 0 if it has none."""

    def nearest(self, word: str) -> str:
        """The text ` (did you mean 'x'?)` with the most similar word, or ""."""

    def write(self, folder: Path, words: Iterable[str]) -> None:
        """Write the dictionary folder (lexiconp.txt, silence_phones.txt, ...).

        With letters as phones it has the `words`; a dictionary is written with all of its words.
        """


@dataclass(frozen=True)
class Lexicon:
    """A dictionary that the user has given."""


@dataclass(frozen=True)
class Letters:
    """Letters as phones, as in Kaldi's character recipes."""


def read_word_list(lexicon: str, faults: FaultList) -> WordList:
    """Read a lexicon.txt, lexiconp.txt, CMU dictionary or dictionary folder; "" for letters.

    Faults of single lines are added to `faults`.
    """
    raise NotImplementedError


def all_words(transcripts: Iterable[Sequence[str]]) -> list[str]:
    """The distinct words of transcripts, sorted."""
    return sorted({word for words in transcripts for word in words})
