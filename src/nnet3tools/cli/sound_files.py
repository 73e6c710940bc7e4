"""Sound files and tables of sound, given as arguments of nnet3-decode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nnet3tools.errors import DataError, naming
from nnet3tools.io import log

if TYPE_CHECKING:
    import numpy as np

    from nnet3tools.io.wave import Wave
    from nnet3tools.recognizer.utterances import UtteranceCounts


def waves(sources: list[str], counts: UtteranceCounts) -> Iterator[tuple[str, np.ndarray, int]]:
    """(key, samples of the first channel, sampling rate) of the sound in tables and files.

    Files that cannot be read are logged and counted.
    """
    for key, wave in _all_waves(sources, counts):
        if len(wave.samples) != 1:
            log.warning(f"{key}: sound with {len(wave.samples)} channels: the first one is decoded")
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


def _all_waves(sources: list[str], counts: UtteranceCounts) -> Iterator[tuple[str, Wave]]:
    """Pairs (key, sound) from tables and files; a file's key is its name without extension."""
    from pathlib import PurePath

    from nnet3tools.cli.tables import is_table, read_object
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.io.wave import WAVE

    with contextlib.ExitStack() as stack:
        for source in sources:
            if is_table(source):
                yield from stack.enter_context(SequentialTableReader(source, WAVE))
                continue
            try:
                wave = read_object(source, WAVE)
            except DataError as error:
                log.skipped(error)
                counts.failed += 1
                continue
            yield PurePath(source).stem, wave
