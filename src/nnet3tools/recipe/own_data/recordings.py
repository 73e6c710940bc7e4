"""Utterances of users' data; their sound, read and written as a Kaldi data directory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import numpy as np

from nnet3tools.cli.progress import Progress
from nnet3tools.errors import DataError, UserError, naming
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.features.resample import resample
from nnet3tools.features.segments import Segment, cut_segment
from nnet3tools.features.sound_files import OutsideError, Sound, read_sound
from nnet3tools.io.files import FileKind, classify_input, open_input
from nnet3tools.io.wave import Wave, read_wave, write_wave
from nnet3tools.io.whole_file import whole_file
from nnet3tools.io.writer import Writer
from nnet3tools.recipe.plan import write_lines

T = TypeVar("T")
_SECONDS_OVER = 0.5
"""A segment may end this much after its recording, as in Kaldi's extract-segments."""
_MIN_ARCHIVE, _MAX_ARCHIVE = 20, 500
"""Utterances in an archive. A thread writes an archive."""


@dataclass(frozen=True)
class SoundSource:
    """A file or pipe with sound, and the part of it from `start` to `end` s (-1: to its end)."""

    name: str
    """Path of a sound file; from wav.scp also a pipe or an offset into an archive."""
    from_wav_scp: bool = False
    """Whether `name` is an rxfilename of Kaldi."""
    start: float = 0.0
    end: float = -1.0
    channel: int = 0


@dataclass(frozen=True)
class Utterance:
    """An utterance: id, speaker, words, sound, and the file and line that it comes from."""

    name: str
    speaker: str
    words: tuple[str, ...]
    sound: SoundSource
    place: str


def by_recording(utterances: Sequence[Utterance]) -> list[list[Utterance]]:
    """Group adjacent utterances that are parts of the same recording."""
    return [list(group) for _, group in groupby(utterances, key=lambda u: u.sound.name)]


def read_sounds(
    utterances: Sequence[Utterance], longest: float = math.inf
) -> Iterator[Sound | UserError]:
    """Yield the sound of each utterance of one recording, or the error of reading it.

    From files, only the first `longest` seconds of an utterance, and a little more, are read. A
    pipe or an offset into an archive has to give a 16-bit wave file, as in Kaldi; it is read once.
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
    """Cut the part that `source` names (times, channel) out of the recording `wave`."""
    clipped = float(np.mean(np.abs(wave.samples.astype(np.int32)) >= 32735))
    segment = Segment("", "", source.start, max(source.end, -1.0), source.channel)
    try:
        samples = cut_segment(wave, segment, 0.0, _SECONDS_OVER).samples[0]
    except DataError as error:
        raise OutsideError(str(error)) from None
    return Sound(wave.rate, samples.astype(np.float32) / 32768.0, len(wave.samples), clipped)


def in_threads(what: str, work: Callable[[T], None], items: Sequence[T]) -> None:
    """Call `work` for each item in several threads; progress messages name `what`."""
    with Progress(what, len(items)) as progress, ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(work, items):
            progress.step()


def write_data_dir(folder: Path, utterances: Sequence[Utterance], rate: int) -> None:
    """Write wav.scp, text, utt2spk, spk2utt and utt2dur, and the sound as archives wav.N.ark.

    Sound becomes one channel of 16-bit numbers at `rate` Hz, resampled as nnet3-decode does it.
    Each file appears whole or not at all. DataError if sound cannot be read, or if the folder's
    name does not fit into wav.scp.
    """
    if any(char in str(folder.absolute()) for char in "|\n"):
        raise DataError(f"'{folder}': a folder with '|' or a line end in its name fits no wav.scp")
    folder.mkdir(parents=True, exist_ok=True)
    size = min(max(len(utterances) // 32, _MIN_ARCHIVE), _MAX_ARCHIVE)
    parts: list[list[list[Utterance]]] = [[]]
    for recording in by_recording(utterances):
        if sum(map(len, parts[-1])) >= size:
            parts.append([])
        parts[-1].append(recording)
    places: dict[str, str] = {}
    seconds: dict[str, float] = {}

    def write_part(number: int) -> None:
        path = str(folder.absolute() / f"wav.{number + 1}.ark")
        with whole_file(path) as file:
            writer = Writer(file, True, path)
            for utterance, sound in _resampled(parts[number], rate):
                writer.write_text(f"{utterance.name} ")
                places[utterance.name] = f"{path}:{writer.offset}"
                seconds[utterance.name] = sound.seconds
                write_wave(writer, Wave(rate, sound.as_int16()[None]))

    in_threads("archives of sound written", write_part, range(len(parts)))
    speakers: dict[str, list[str]] = {}
    for utterance in utterances:
        speakers.setdefault(utterance.speaker, []).append(utterance.name)
    for name, values in {
        "text": {u.name: " ".join(u.words) for u in utterances},
        "utt2spk": {u.name: u.speaker for u in utterances},
        "spk2utt": {name: " ".join(names) for name, names in speakers.items()},
        "utt2dur": {name: f"{length:.3f}" for name, length in seconds.items()},
        "wav.scp": places,
    }.items():
        write_lines(folder / name, (f"{key} {value}" for key, value in sorted(values.items())))


def _resampled(
    recordings: Sequence[Sequence[Utterance]], rate: int
) -> Iterator[tuple[Utterance, Sound]]:
    """Yield each utterance of the recordings with its sound resampled to `rate` Hz."""
    for recording in recordings:
        for utterance, sound in zip(recording, read_sounds(recording), strict=True):
            if isinstance(sound, UserError):
                with naming(f"{utterance.place}: '{utterance.sound.name}'"):
                    raise sound
            if sound.rate != rate:
                sound = Sound(rate, resample(sound.samples, sound.rate, rate))
            yield utterance, sound
