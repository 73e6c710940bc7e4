"""The sound of utterances, read recording by recording."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TypeVar

import numpy as np

from nnet3tools.cli.progress import Progress
from nnet3tools.errors import DataError, UserError
from nnet3tools.features.segments import Segment, cut_segment
from nnet3tools.features.sound_files import OutsideError, Sound, read_sound
from nnet3tools.io.files import FileKind, classify_input, open_input
from nnet3tools.io.wave import Wave, read_wave
from nnet3tools.recipe.own_data.utterances import SoundSource, Utterance

T = TypeVar("T")
_SECONDS_OVER = 0.5
"""A segment may end this much after its recording, as in Kaldi's extract-segments."""


def by_recording(utterances: Sequence[Utterance]) -> list[list[Utterance]]:
    """Group adjacent utterances that are parts of one recording."""
    return [list(group) for _, group in groupby(utterances, key=lambda u: u.sound.name)]


def read_sounds(
    utterances: Sequence[Utterance], longest: float = math.inf
) -> Iterator[Sound | UserError]:
    """Yield the sound of each utterance of one recording, or the error of reading it.

    Of utterances of more than `longest` seconds, only the beginning is read from files. A pipe or
    an offset into an archive has to give a 16-bit wave file, as in Kaldi; it is read once.
    """
    name = utterances[0].sound.name
    try:
        is_file = not utterances[0].sound.from_wav_scp or classify_input(name) is FileKind.FILE
        wave = None if is_file else _read_wave(name)
    except UserError as error:
        yield from [error] * len(utterances)
        return
    for utterance in utterances:
        source = utterance.sound
        try:
            if wave is None:
                yield read_sound(name, source.start, source.end, source.channel, longest)
            else:
                yield _part(wave, source)
        except UserError as error:
            yield error


def _read_wave(rxfilename: str) -> Wave:
    with open_input(rxfilename, header=False) as reader:
        return read_wave(reader)


def _part(wave: Wave, source: SoundSource) -> Sound:
    """The part of a recording that a source names."""
    clipped = float(np.mean(np.abs(wave.samples.astype(np.int32)) >= 32735))
    end = source.end if source.end >= 0.0 else -1.0
    segment = Segment("", "", source.start, end, source.channel)
    try:
        samples = cut_segment(wave, segment, 0.0, _SECONDS_OVER).samples[0]
    except DataError as error:
        raise OutsideError(str(error)) from None
    return Sound(wave.rate, samples.astype(np.float32) / 32768.0, len(wave.samples), clipped)


def in_threads(what: str, work: Callable[[T], None], items: Sequence[T], num_threads: int) -> None:
    """Call `work` for all items and show the progress of `what`.

    `num_threads` up to 0 means the number of processors. Threads help because libsndfile and NumPy
    release Python's lock.
    """
    threads = ThreadPoolExecutor(num_threads if num_threads > 0 else os.cpu_count())
    with Progress(what, len(items)) as progress, threads as pool:
        for _ in pool.map(work, items):
            progress.step()
