"""Writing of utterances as a Kaldi data directory with 16-bit sound at one rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nnet3tools.errors import DataError, UserError, naming
from nnet3tools.features.resample import resample
from nnet3tools.features.sound_files import Sound
from nnet3tools.io.files import open_output
from nnet3tools.io.wave import Wave, write_wave
from nnet3tools.io.whole_file import whole_file
from nnet3tools.io.writer import Writer
from nnet3tools.recipe.own_data.recordings import by_recording, in_threads, read_sounds
from nnet3tools.recipe.own_data.utterances import Utterance

_MIN_ARCHIVE, _MAX_ARCHIVE = 20, 500
"""Utterances in an archive. A thread writes an archive."""


def bytes_needed(seconds: float, rate: int) -> int:
    """The disk space of `seconds` of 16-bit sound: 115 MB for an hour at 16 kHz."""
    return round(2 * rate * seconds)


def write_data_dir(
    folder: Path, utterances: Sequence[Utterance], rate: int, num_threads: int = 0
) -> None:
    """Write wav.scp, text, utt2spk, spk2utt and utt2dur, and the sound as archives wav.N.ark.

    Sound becomes one channel of `rate` Hz, resampled as nnet3-decode does it. Each file appears
    whole or not at all. DataError if sound cannot be read, or if the folder's name does not fit
    into wav.scp.
    """
    if any(char in str(folder.absolute()) for char in "|\n"):
        raise DataError(f"'{folder}': a folder with '|' or a line end in its name fits no wav.scp")
    folder.mkdir(parents=True, exist_ok=True)
    size = min(max(len(utterances) // 32, _MIN_ARCHIVE), _MAX_ARCHIVE)
    parts: list[list[Utterance]] = [[]]
    for recording in by_recording(utterances):
        if len(parts[-1]) >= size:
            parts.append([])
        parts[-1] += recording
    places: dict[str, str] = {}
    seconds: dict[str, float] = {}

    def write_part(number: int) -> None:
        path = str(folder.absolute() / f"wav.{number + 1}.ark")
        _write_archive(path, parts[number], rate, places, seconds)

    in_threads("archives of sound written", write_part, range(len(parts)), num_threads)
    speakers: dict[str, list[str]] = {}
    for utterance in sorted(utterances, key=lambda utterance: utterance.name):
        speakers.setdefault(utterance.speaker, []).append(utterance.name)
    _write_lines(folder / "text", {u.name: " ".join(u.words) for u in utterances})
    _write_lines(folder / "utt2spk", {u.name: u.speaker for u in utterances})
    _write_lines(folder / "spk2utt", {name: " ".join(names) for name, names in speakers.items()})
    _write_lines(folder / "utt2dur", {name: f"{length:.3f}" for name, length in seconds.items()})
    _write_lines(folder / "wav.scp", places)


def _write_archive(
    path: str,
    utterances: Sequence[Utterance],
    rate: int,
    places: dict[str, str],
    seconds: dict[str, float],
) -> None:
    """Write an archive of sound; adds places in the archive and durations by utterance id."""
    with whole_file(path) as file:
        writer = Writer(file, True, path)
        for recording in by_recording(utterances):
            for utterance, sound in zip(recording, read_sounds(recording), strict=True):
                if isinstance(sound, UserError):
                    with naming(f"{utterance.place}: '{utterance.sound.name}'"):
                        raise sound
                if sound.rate != rate:
                    sound = Sound(rate, resample(sound.samples, sound.rate, rate))
                writer.write_text(f"{utterance.name} ")
                places[utterance.name] = f"{path}:{writer.offset}"
                seconds[utterance.name] = sound.seconds
                write_wave(writer, Wave(rate, sound.as_int16()[None]))


def _write_lines(path: Path, values: Mapping[str, str]) -> None:
    with open_output(str(path), binary=False) as writer:
        writer.write_text("".join(f"{key} {value}\n" for key, value in sorted(values.items())))
