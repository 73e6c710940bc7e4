"""Sound files of any format and rate that libsndfile reads, as samples of one channel."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, install_command
from nnet3tools.fast_dataclasses import dataclass

MIN_RATE, MAX_RATE = 4_000, 768_000
_BLOCK = 1 << 18
"""Samples of a channel that are read at once: headers do not decide how much memory is used."""
_FULL_SCALE = 0.999


class OutsideError(DataError):
    """Error: a requested part of a recording is not within the recording."""


@dataclass(frozen=True)
class Sound:
    """The samples of one channel of sound, 1 being full scale, and its rate in Hz.

    `num_channels` is that of the file, `clipped` the share of the file's samples at full scale.
    """

    rate: int
    samples: NDArray[np.float32]
    """Shape (samples,); full scale is 1."""
    num_channels: int = 1
    clipped: float = 0.0

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return len(self.samples) / self.rate

    def as_int16(self) -> NDArray[np.int16]:
        """The samples as 16-bit numbers; larger samples are clipped."""
        return np.clip(np.rint(self.samples * 32768.0), -32768, 32767).astype(np.int16)


def read_sound(
    path: str, start: float = 0.0, end: float = -1.0, channel: int = 0, longest: float = math.inf
) -> Sound:
    """Read one channel of a sound file from `start` to `end` seconds (-1: end of the file).

    Reading ends after `longest` seconds plus one sample. OutsideError if the file ends more than
    0.5 s before `end`. DataError if it cannot be read, or has samples that are not finite. Messages
    do not name the file.
    """
    with _opened(path) as file:
        rate, num_channels = file.samplerate, file.channels
        if not MIN_RATE <= rate <= MAX_RATE:
            raise DataError(f"{rate} samples per second")
        if channel >= num_channels:
            raise DataError(f"{num_channels} channels, not channel {channel}")
        first = min(round(start * rate), file.frames)
        if first:
            file.seek(first)
        wanted = min(math.inf if end < 0 else round(end * rate) - first, longest * rate + 1)
        blocks: list[NDArray[np.float32]] = []
        num_read = num_full = 0
        while num_read < wanted:
            block = file.read(int(min(_BLOCK, wanted - num_read)), "float32", always_2d=True)
            if not len(block):
                break
            num_read += len(block)
            num_full += int(np.count_nonzero(np.abs(block) >= _FULL_SCALE))
            blocks.append(block[:, channel].copy())
    if end >= 0 and wanted - num_read > 0.5 * rate:
        length = (first + num_read) / rate
        raise OutsideError(f"{start:g} to {end:g} s of a recording of {length:.2f} s")
    samples = np.concatenate([*blocks, np.zeros(0, np.float32)])
    if not np.isfinite(samples).all():
        raise DataError("samples that are not finite")
    return Sound(rate, samples, num_channels, num_full / max(num_read * num_channels, 1))


def read_instead(path: str, error: DataError) -> Sound:
    """Read the first channel of a file with libsndfile, after reading it as wave raised `error`.

    DataError if libsndfile fails too. If `path` is a pipe or no file, `error` is raised.
    """
    if not os.path.isfile(path):
        raise error
    try:
        return read_sound(path)
    except DataError as other:
        raise DataError(f"{error}; read by libsndfile: {other}") from None


def import_soundfile() -> Any:
    """Import and return the package soundfile; DataError, with a remedy, if it is missing."""
    try:
        import soundfile
    except ImportError:
        raise DataError(
            f"reading sound files needs the package soundfile: {install_command('recipe')}"
        ) from None
    return soundfile


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Context in which the file is open as a soundfile.SoundFile; its errors become DataError."""
    soundfile = import_soundfile()
    try:
        # A descriptor, because from a name soundfile would take the format of headerless files.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise DataError(f"{error.strerror}") from None
    try:
        with soundfile.SoundFile(descriptor, closefd=True) as file:
            yield file
    except (soundfile.SoundFileError, ValueError, TypeError) as error:
        raise DataError(str(getattr(error, "error_string", error)).rstrip(".")) from None
