"""Utterances of a user's data, in one form for Kaldi data directories and manifests."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.recipe.own_data.faults import FaultList


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
    channel: int = -1
    """Channel number; -1 is the mean of all channels."""


@dataclass(frozen=True)
class Utterance:
    """An utterance: id, speaker, words, sound, and the file and line that it comes from."""

    name: str
    speaker: str
    words: tuple[str, ...]
    sound: SoundSource
    place: str


@dataclass(frozen=True)
class Corpus:
    """The utterances of some data, sorted by id."""

    utterances: tuple[Utterance, ...]
    has_speakers: bool
    """Whether the data names its speakers; otherwise each utterance is its own speaker."""


def read_corpus(data: str, faults: FaultList) -> Corpus:
    """Read a Kaldi data directory, or a TSV, CSV or JSON-lines manifest of sound files.

    Faults of single lines are added to `faults`, and their utterances are left out. DataError if
    `data` cannot be read at all.
    """
    raise NotImplementedError
