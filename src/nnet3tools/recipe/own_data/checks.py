"""Checks of sound and transcripts before training: the one list of faults."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.recipe.own_data.corpus import Corpus, Utterance
from nnet3tools.recipe.own_data.faults import FaultList
from nnet3tools.recipe.own_data.pronunciations import WordList


@dataclass(frozen=True)
class CheckOptions:
    """Limits of the checks."""

    frame_seconds: float = 0.03
    """Duration of a frame of the network's output: frame shift times subsampling factor."""
    max_seconds: float = 30.0
    """Longest utterance."""
    max_unknown: float = 0.1
    """Largest share of running words that may be missing from the lexicon."""
    num_threads: int = 0
    """Files that are read at the same time; 0 for the number of processors."""


@dataclass(frozen=True)
class SoundFacts:
    """What the checks found out about the sound of an utterance."""

    rate: int
    num_channels: int
    seconds: float
    peak: float
    """Largest absolute sample; 1 is full scale."""
    clipped: float
    """Share of samples at full scale."""


@dataclass(frozen=True)
class CheckedData:
    """The utterances that can be used, with words normalized for the lexicon, and their sound."""

    utterances: tuple[Utterance, ...]
    facts: dict[str, SoundFacts]
    """Facts by utterance id."""
    has_speakers: bool
    rate: int
    """Sampling rate for training: 16000 if half of the sound has it or more, else 8000."""

    @property
    def seconds(self) -> float:
        """The total duration of all utterances."""
        return sum(self.facts[utterance.name].seconds for utterance in self.utterances)


def check_data(
    corpus: Corpus, lexicon: WordList, faults: FaultList, options: CheckOptions
) -> CheckedData:
    """Check sound and words of all utterances; faults are added to `faults`.

    The result lacks utterances with errors, and those that are left out.
    """
    raise NotImplementedError


def split_held_out(
    data: CheckedData, share: float = 0.1, max_seconds: float = 7200.0
) -> tuple[tuple[Utterance, ...], tuple[Utterance, ...]]:
    """Split into utterances for training and held-out ones; the result depends on ids only.

    Held out are speakers with about `share` of the sound, at least one speaker and at most
    `max_seconds` of sound. If there is only one speaker, utterances are held out.
    """
    raise NotImplementedError
