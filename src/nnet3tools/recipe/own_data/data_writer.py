"""Writing of utterances as a Kaldi data directory with 16-bit sound at one rate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nnet3tools.recipe.own_data.corpus import Utterance


def bytes_needed(seconds: float, rate: int) -> int:
    """The disk space of `seconds` of 16-bit sound: 115 MB for an hour at 16 kHz."""
    return round(2 * rate * seconds)


def write_data_dir(
    folder: Path, utterances: Sequence[Utterance], rate: int, num_threads: int = 0
) -> None:
    """Write wav.scp, text, utt2spk, spk2utt and utt2dur, and the sound as archives wav.N.ark.

    Sound is resampled to `rate` Hz, and one channel. Files appear whole or not at all.
    """
    raise NotImplementedError
