"""Sound that arrives on a pipe, as raw samples or as a wave file (recognized by its header)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.reader import Reader
from nnet3tools.io.wave import WaveInfo, pieces_of, read_wave_info

_PIECE = 1 << 16
_OTHER_KINDS = {b"OggS": "Ogg", b"fLaC": "FLAC", b"ID3": "MP3", b"FORM": "AIFF", b"\x1aE": "WebM"}


@dataclass(frozen=True)
class LiveSound:
    """Sound on a pipe: its sampling rate, the format of samples given as bytes, and its pieces."""

    rate: float
    sample_format: str
    pieces: Iterator[bytes | np.ndarray]


def live_sound(reader: Reader, rate: float, sample_format: str) -> LiveSound:
    """The sound on a pipe; its pieces can be read as soon as they arrive.

    `rate` and `sample_format` describe raw samples; a wave file describes itself. DataError if
    there is no sound, or if its format is not supported.
    """
    if reader.peek_byte() < 0:
        raise DataError(f"{reader.name}: expected sound, found none")
    while len(head := reader.buffered(4)) < 4 and reader.more():
        pass
    for magic, kind in _OTHER_KINDS.items():
        if head.startswith(magic):
            raise DataError(
                f"{reader.name}: expected raw samples or a wave file, found {kind}: convert it, as "
                "by ffmpeg -i - -f wav -"
            )
    if head not in (b"RIFF", b"RIFX"):
        return LiveSound(rate, sample_format, _raw_pieces(reader, sample_format))
    info = read_wave_info(reader)
    if info.num_channels != 1:
        log.warning(
            f"{reader.name}: sound with {info.num_channels} channels: the first one is decoded"
        )
    return LiveSound(info.rate, "int16", _first_channel(reader, info))


def _raw_pieces(reader: Reader, sample_format: str) -> Iterator[bytes]:
    count = 0
    for piece in pieces_of(reader, None, _PIECE):
        count += len(piece)
        yield piece
    if rest := count % np.dtype(sample_format).itemsize:
        log.warning(f"{reader.name}: {rest} bytes at the end are not a whole sample")


def _first_channel(reader: Reader, info: WaveInfo) -> Iterator[np.ndarray]:
    """Yield arrays (samples,) of int16: the first channel of a wave file."""
    block = 2 * info.num_channels
    wanted = None if info.num_samples < 0 else info.num_samples * block
    rest, count = b"", 0
    for piece in pieces_of(reader, wanted, _PIECE):
        count += len(piece)
        data = rest + piece
        size = len(data) // block * block
        rest = data[size:]
        samples = np.frombuffer(data[:size], ">i2" if info.big_endian else "<i2")
        yield samples.reshape(-1, info.num_channels)[:, 0].astype(np.int16)
    if wanted is not None and count < wanted:
        log.warning(
            f"Expected {wanted} bytes of wave data, but read only {count} bytes. Truncated file?"
        )
