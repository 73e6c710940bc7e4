"""Feature files of HTK and of CMU Sphinx: big-endian matrices with a small header each."""

import struct

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.holders import Holder
from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

_BASE_KIND, _COMPRESSED, _VQ = 0o77, 0o2000, 0o40000
_NOT_FEATURES = (0, 5, 10)  # waveform, irefc, discrete
_SPHINX_DIM = 13


@dataclass(frozen=True)
class HtkFeatures:
    """Features (frames, dim) of an HTK file, HTK's code for their kind, frame period in 100 ns."""

    features: NDArray[np.float32]
    kind: int
    period: int = 100_000


def _read_htk(reader: Reader) -> HtkFeatures:
    head = reader.read_array(12, np.uint8, "the header of an HTK file").tobytes()
    num_frames, period, size, kind = struct.unpack(">iihH", head)
    if kind & (_COMPRESSED | _VQ):
        raise reader.error("expected plain HTK features, found compressed ones or VQ")
    if kind & _BASE_KIND in _NOT_FEATURES:
        raise reader.error(f"expected HTK features, found kind {kind & _BASE_KIND} (no features)")
    if num_frames < 0 or size < 0 or size % 4:
        raise reader.error(f"no HTK file has {num_frames} frames of {size} bytes")
    flat = reader.read_array(num_frames * size // 4, ">f4", f"{num_frames} frames of {size} bytes")
    return HtkFeatures(flat.reshape(num_frames, size // 4).astype(np.float32), kind, period)


def _write_htk(writer: Writer, value: HtkFeatures) -> None:
    rows, columns = value.features.shape
    writer.write_bytes(struct.pack(">iihH", rows, value.period, 4 * columns, value.kind))
    writer.write_bytes(value.features.astype(">f4").tobytes())


def _read_sphinx(reader: Reader) -> NDArray[np.float32]:
    count = int(reader.read_array(1, ">i4", "the header of a Sphinx file")[0])
    if count < 0 or count % _SPHINX_DIM:
        raise reader.error(f"expected frames of {_SPHINX_DIM} numbers, found {count} numbers")
    flat = reader.read_array(count, ">f4", f"{count} Sphinx features")
    return flat.reshape(-1, _SPHINX_DIM).astype(np.float32)


def _write_sphinx(writer: Writer, value: NDArray[np.float32]) -> None:
    writer.write_bytes(struct.pack(">i", value.size))
    writer.write_bytes(value.astype(">f4").tobytes())


HTK: Holder[HtkFeatures] = Holder("HTK features", _read_htk, _write_htk, has_header=False)

SPHINX: Holder[NDArray[np.float32]] = Holder(
    "Sphinx features", _read_sphinx, _write_sphinx, has_header=False
)
"""Sphinx features, 13 numbers per frame."""
