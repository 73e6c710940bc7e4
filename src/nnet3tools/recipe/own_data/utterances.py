"""Utterances of users' data, in one form for Kaldi data directories and manifests."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_LONGEST_SPEAKER = 32


@dataclass(frozen=True)
class SoundSource:
    """Where the sound of an utterance is."""

    name: str
    """Path of a sound file; from wav.scp also a pipe or an offset into an archive."""
    from_wav_scp: bool = False
    """Whether `name` is an rxfilename of Kaldi."""
    start: float = 0.0
    """Begin in seconds."""
    end: float = -1.0
    """End in seconds; -1 is the end of the recording."""
    channel: int = 0


@dataclass(frozen=True)
class Utterance:
    """An utterance: id, speaker, words, sound, and the file and line that it comes from."""

    name: str
    speaker: str
    words: tuple[str, ...]
    sound: SoundSource
    place: str


def as_key(text: str) -> str:
    """The text as a key of Kaldi's tables: other characters than letters and digits become _."""
    return re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFC", text)).lstrip("-") or "_"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Keys of Kaldi's tables by name, all different; those of long names are their beginnings."""
    found: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for name in sorted(set(names)):
        short = key = as_key(name)[:_LONGEST_SPEAKER]
        while key in taken:
            taken[short] += 1
            key = f"{short}-{taken[short]}"
        taken[key] = 1
        found[name] = key
    return found
