"""RIFF wave files with 16-bit samples, as Kaldi reads and writes them.

The format is that of Microsoft's "Multimedia Programming Interface and Data Specifications 1.0".
Chunks are accepted or skipped as in Kaldi's feat/wave-reader.cc.
"""

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import quoted
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.holders import Holder
from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

_PCM, _EXTENSIBLE = 1, 0xFFFE
_PCM_GUID = bytes.fromhex("0100000000001000800000aa00389b71")
_STREAM_SIZES = (0, 0xFFFFFFFF, 0x7FFFF000)
"""Data sizes in headers of streams, whose length the writer did not know; the last is SoX's."""
_PIECE = 1 << 20


@dataclass(frozen=True)
class WaveInfo:
    """The format of a wave file's sound, from its header.

    `rate`: samples per second. `num_samples`: of each channel, -1 if the header does not give it.
    """

    rate: int
    num_channels: int
    num_samples: int
    big_endian: bool

    @property
    def duration(self) -> float:
        """Duration of the sound in seconds, rounded to float32."""
        return float(np.float32(self.num_samples) / np.float32(self.rate))


@dataclass(frozen=True)
class Wave:
    """Sound samples, int16 (channels, samples), with the number of samples per second."""

    rate: int
    samples: NDArray[np.int16]

    @property
    def duration(self) -> float:
        """Duration of the sound in seconds, rounded to float32."""
        return float(np.float32(self.samples.shape[1]) / np.float32(self.rate))


def read_wave_info(reader: Reader) -> WaveInfo:
    """Read a wave file's header, up to the samples; DataError unless it is 16-bit PCM."""
    tag = _tag(reader)
    if tag not in (b"RIFF", b"RIFX"):
        raise reader.error(
            f"expected a wave file (RIFF or RIFX), found {quoted(tag.decode('utf-8', 'replace'))}"
        )
    order = ">" if tag == b"RIFX" else "<"
    riff_size = _number(reader, order)
    if (tag := _tag(reader)) != b"WAVE":
        raise reader.error(f"expected WAVE, found {quoted(tag.decode('utf-8', 'replace'))}")
    counted = 4
    counted += _skip_until(reader, b"fmt ", order)
    rate, num_channels, size = _read_format(reader, order)
    counted += 4 + size + _skip_until(reader, b"data", order)
    data_size = _number(reader, order)
    counted += 4
    if riff_size in (0, 0xFFFFFFFF) or data_size in _STREAM_SIZES:
        return WaveInfo(rate, num_channels, -1, order == ">")
    if abs(counted + data_size - riff_size) > 1:
        log.warning(
            f"Expected {riff_size} bytes in RIFF chunk, but after first data block there will be "
            f"{counted} + {data_size} bytes (we do not support reading multiple data chunks)."
        )
    return WaveInfo(rate, num_channels, data_size // (2 * num_channels), order == ">")


def _read_format(reader: Reader, order: str) -> tuple[int, int, int]:
    """Read the chunk "fmt " in byte order `order`: sampling rate, channels, size of the chunk."""
    size = _number(reader, order)
    if not 16 <= size <= 1 << 16:
        raise reader.error(f"expected a format chunk of 16 bytes or more, found one of {size}")
    chunk = reader.read_array(size, np.uint8, "a wave file's format").tobytes()
    kind, channels, rate, byte_rate, align, bits = struct.unpack_from(order + "HHIIHH", chunk)
    if kind == _EXTENSIBLE and (size < 40 or chunk[24:40] != _PCM_GUID):
        raise reader.error("expected 16-bit PCM, found another WAVE_FORMAT_EXTENSIBLE format")
    if kind not in (_PCM, _EXTENSIBLE):
        raise reader.error(f"expected PCM data (format 1), found format {kind}")
    if bits != 16:
        raise reader.error(f"expected 16 bits a sample, found {bits}")
    if channels == 0 or rate == 0:
        raise reader.error(f"expected channels and a rate, found {channels} and {rate}")
    if byte_rate != 2 * rate * channels or align != 2 * channels:
        raise reader.error(
            f"{channels} channels of 16 bits at {rate} Hz do not make {byte_rate} bytes a second "
            f"in blocks of {align}"
        )
    return rate, channels, size


def _skip_until(reader: Reader, wanted: bytes, order: str) -> int:
    """Skip chunks (byte order `order`) and the tag `wanted`; returns the number of bytes read."""
    counted = 4
    while (tag := _tag(reader)) != wanted:
        left = size = _number(reader, order)
        while left:
            piece = min(left, _PIECE)
            reader.read_array(piece, np.uint8, f"the wave file's chunk {tag!r}")
            left -= piece
        counted += 8 + size
    return counted


def _tag(reader: Reader) -> bytes:
    return reader.read_array(4, np.uint8, "a wave file").tobytes()


def _number(reader: Reader, order: str) -> int:
    return int(reader.read_array(1, order + "u4", "a wave file")[0])


def read_wave(reader: Reader) -> Wave:
    """Read a wave file; a truncated file gives the samples that it has, with a warning."""
    info = read_wave_info(reader)
    block = 2 * info.num_channels
    wanted = None if info.num_samples < 0 else info.num_samples * block
    data = b"".join(pieces_of(reader, wanted, _PIECE))
    if not data:
        raise reader.error("expected samples, found none (an empty wave file)")
    if wanted is not None and len(data) < wanted:
        log.warning(
            f"Expected {wanted} bytes of wave data, but read only {len(data)} bytes. "
            "Truncated file?"
        )
    stored = np.frombuffer(
        data, ">i2" if info.big_endian else "<i2", len(data) // block * block // 2
    )
    samples = stored.reshape(-1, info.num_channels).T.astype(np.int16)
    return Wave(info.rate, np.ascontiguousarray(samples))


def pieces_of(reader: Reader, size: int | None, most: int) -> Iterator[bytes]:
    """Yield the next `size` bytes (None: all) in pieces of up to `most`, as they arrive."""
    left = size
    while left != 0 and reader.peek_byte() >= 0:
        piece = reader.buffered(most if left is None else min(left, most))
        reader.advance(len(piece))
        if left is not None:
            left -= len(piece)
        yield piece


def write_wave(writer: Writer, wave: Wave) -> None:
    """Write a wave file (always binary, always little endian)."""
    channels, num_samples = wave.samples.shape
    size = 2 * channels * num_samples
    head = (b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, _PCM, channels, wave.rate)
    tail = (2 * wave.rate * channels, 2 * channels, 16, b"data", size)
    writer.write_bytes(struct.pack("<4sI4s4sIHHIIHH4sI", *head, *tail))
    writer.write_bytes(wave.samples.T.astype("<i2").tobytes())


WAVE: Holder[Wave] = Holder("a wave file", read_wave, write_wave, has_header=False)

WAVE_INFO: Holder[WaveInfo] = Holder("a wave file", read_wave_info, has_header=False)
"""Headers only, for script files; the samples are not read."""
