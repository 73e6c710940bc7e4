"""Sound files and tables of sound, given as arguments of nnet3-decode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nnet3tools.errors import DataError, naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.io.wave import Wave
    from nnet3tools.recognizer.utterances import UtteranceCounts


def waves(sources: list[str], counts: UtteranceCounts) -> Iterator[tuple[str, np.ndarray, int]]:
    """(key, int16 samples of the first channel, sampling rate) for each sound in tables and files.

    Files that cannot be read are logged and counted.
    """
    for key, wave, num_channels in _all_waves(sources, counts):
        if num_channels != 1:
            log.warning(f"{key}: sound with {num_channels} channels: the first one is decoded")
        yield key, wave.samples[0], wave.rate


@contextlib.contextmanager
def skipping(key: str, counts: UtteranceCounts) -> Iterator[None]:
    """Scope in which a DataError about utterance `key` is logged and counted."""
    try:
        with naming(f"utterance {key}"):
            yield
    except DataError as error:
        log.skipped(error)
        counts.failed += 1


def _all_waves(sources: list[str], counts: UtteranceCounts) -> Iterator[tuple[str, Wave, int]]:
    """Yield (key, sound, the source's number of channels) for the tables and files `sources`.

    A file's key is its name without extension. Of a file that is no 16-bit wave file, the sound has
    only the first channel. A file that cannot be read is logged and counted as failed in `counts`.
    """
    from pathlib import PurePath

    from nnet3tools.cli.tables import is_table
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.io.wave import WAVE

    with contextlib.ExitStack() as stack:
        for source in sources:
            if is_table(source):
                for key, wave in stack.enter_context(SequentialTableReader(source, WAVE)):
                    yield key, wave, len(wave.samples)
                continue
            try:
                wave, num_channels = _read_file(source)
            except DataError as error:
                log.skipped(error)
                counts.failed += 1
                continue
            yield PurePath(source).stem, wave, num_channels


def _read_file(name: str) -> tuple[Wave, int]:
    """(sound, the file's number of channels); only the first channel unless 16-bit WAV."""
    from nnet3tools.cli.tables import read_object
    from nnet3tools.features.sound_files import read_instead
    from nnet3tools.io.wave import WAVE, Wave

    try:
        wave = read_object(name, WAVE)
        return wave, len(wave.samples)
    except DataError as error:
        sound = read_instead(name, error)
        return Wave(sound.rate, sound.as_int16()[None]), sound.num_channels
