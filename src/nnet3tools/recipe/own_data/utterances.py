"""Utterances of users' data, in one form for Kaldi data directories and manifests."""

from __future__ import annotations

from dataclasses import dataclass


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
