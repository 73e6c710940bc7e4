"""Posteriors (hmm/posterior.h): weighted pdfs for each frame, as CSR arrays."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.reader import Reader
from nnet3tools.io.sparse import SparseMatrix, offsets_of
from nnet3tools.io.text import cast, format_float, parse_lines
from nnet3tools.io.writer import Writer


@dataclass(frozen=True, eq=False)
class Posterior:
    """Weights of pdfs: frame f has weights[i] on pdfs[i] for offsets[f] <= i < offsets[f + 1]."""

    offsets: NDArray[np.int32]
    pdfs: NDArray[np.int32]
    weights: NDArray[np.float32]

    @classmethod
    def from_counts(cls, counts: ArrayLike, pdfs: ArrayLike, weights: ArrayLike) -> Posterior:
        """Make a Posterior of the number of entries in each frame, and all pdfs and weights."""
        ids = np.ascontiguousarray(pdfs, np.int32)
        return cls(offsets_of(counts), ids, np.ascontiguousarray(cast(weights, np.float32)))

    @classmethod
    def from_frames(cls, frames: Sequence[Sequence[tuple[int, float]]]) -> Posterior:
        """Make a Posterior of a list of (pdf, weight) pairs for each frame."""
        pairs = [pair for frame in frames for pair in frame]
        columns = np.array(pairs, np.float64).reshape(-1, 2).T
        return cls.from_counts([len(frame) for frame in frames], *columns)

    def frames(self) -> list[list[tuple[int, float]]]:
        """The (pdf, weight) pairs of each frame."""
        pairs = list(zip(self.pdfs.tolist(), self.weights.tolist(), strict=True))
        return [pairs[a:b] for a, b in itertools.pairwise(self.offsets.tolist())]

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return len(self.offsets) - 1

    def __len__(self) -> int:
        """Number of frames."""
        return self.num_frames

    def __getitem__(self, frames: slice) -> Posterior:
        """The posterior of the frames from `frames.start` to `frames.stop` - 1."""
        offsets = self.offsets[frames.start : frames.stop + 1]
        entries = slice(offsets[0], offsets[-1])
        return Posterior(offsets - offsets[0], self.pdfs[entries], self.weights[entries])

    def to_sparse(self, num_pdfs: int) -> SparseMatrix:
        """Convert to a matrix (frames, pdfs); as in Kaldi, equal pdfs of a frame are summed.

        DataError if a pdf is not below `num_pdfs`.
        """
        wrong = np.flatnonzero((self.pdfs < 0) | (self.pdfs >= num_pdfs))
        if wrong.size:
            raise DataError(f"pdf {self.pdfs[wrong[0]]} of a posterior is not below {num_pdfs}")
        rows = np.repeat(np.arange(self.num_frames, dtype=np.int64), np.diff(self.offsets))
        keys = rows * num_pdfs + self.pdfs
        unique, inverse = np.unique(keys, return_inverse=True)
        values = np.bincount(inverse, self.weights, minlength=len(unique)).astype(np.float32)
        if len(unique) == len(keys):  # no sums: keep the weights' exact values
            values[inverse] = self.weights
        unique, values = unique[values != 0], values[values != 0]
        counts = np.bincount(unique // num_pdfs, minlength=self.num_frames)
        return SparseMatrix.from_counts(counts, unique % num_pdfs, values, num_pdfs)


_FRAMES = re.compile(rb"(?:\s*\[[^\[\]]*\])*\s*")


def write_posterior(writer: Writer, posterior: Posterior) -> None:
    """Write a posterior; in text mode as one line, "[ pdf weight ... ] [ ... ] "."""
    if not writer.binary:
        counts = np.diff(posterior.offsets)
        words = np.empty((len(posterior.pdfs), 2), object)
        words[:, 0] = posterior.pdfs
        words[:, 1] = list(map(format_float, posterior.weights.tolist()))
        template = "".join("[ " + "%d %s " * count + "] " for count in counts.tolist())
        writer.write_text(template % tuple(words.ravel()) + "\n")
        return
    writer.write_int32(posterior.num_frames)
    writer.write_bytes(bytes_of_frames(posterior))


def bytes_of_frames(posterior: Posterior) -> bytes:
    """The binary form of all frames: the number of pdfs, then pairs of pdf and weight.

    A frame takes 5 bytes and 10 for each pdf.
    """
    counts = np.diff(posterior.offsets)
    # Integer cells: for each frame the count, then pairs of pdf and the bits of its weight.
    cells = np.empty(len(counts) + 2 * len(posterior.pdfs), "<i4")
    is_count = np.zeros(len(cells), bool)
    is_count[np.arange(len(counts)) + 2 * posterior.offsets[:-1].astype(np.int64)] = True
    cells[is_count] = counts
    pairs = np.stack([posterior.pdfs.astype("<i4"), posterior.weights.view("<i4")], axis=1)
    cells[~is_count] = pairs.ravel()
    out = np.full((len(cells), 5), 4, np.uint8)
    out[:, 1:] = cells.view(np.uint8).reshape(-1, 4)
    return out.tobytes()


def read_posterior(reader: Reader) -> Posterior:
    """Read a posterior that `write_posterior` wrote."""
    return _read_binary(reader) if reader.binary else _read_line(reader)


def _read_line(reader: Reader) -> Posterior:
    line = reader.read_line().encode("utf-8", "surrogateescape")
    if _FRAMES.fullmatch(line) is None:
        raise reader.error("expected a posterior such as [ 12 0.6 3 0.4 ] [ 12 1 ]")
    # The 0 keeps the line of a frame without entries.
    plain = line.replace(b"\n", b" ").replace(b"[", b" 0 ").replace(b"]", b"\n")
    try:
        numbers, counts = parse_lines(plain, np.float64)
    except ValueError as error:
        raise reader.error(f"in a posterior: {error}") from None
    if (counts % 2 == 0).any():
        raise reader.error("a frame of a posterior has a pdf without a weight")
    pairs = np.delete(numbers, np.cumsum(counts) - counts).reshape(-1, 2)
    if (pairs[:, 0] != np.floor(pairs[:, 0])).any() or (abs(pairs[:, 0]) >= 1 << 31).any():
        raise reader.error("a pdf of a posterior is not an integer")
    return Posterior.from_counts(counts // 2, pairs[:, 0], pairs[:, 1])


def _read_binary(reader: Reader) -> Posterior:
    if (found := reader.take(find_even_frames)) is not None:
        data, count = found
        return frames_of_bytes(data, np.full(len(data) // (5 + 10 * count), count))
    num_frames = reader.read_count("a posterior", "frames")
    counts: list[int] = []
    frames: list[bytes] = []
    for _ in range(num_frames):
        counts.append(count := _peek_count(reader))
        start, what = reader.offset, f"a frame of {count} pdfs"
        frames.append(reader.read_array(5 + 10 * count, np.uint8, what).tobytes())
        if frames[-1][::5] != b"\4" * (1 + 2 * count):
            raise reader.error("expected 32-bit pdfs and weights in a posterior", start)
    return frames_of_bytes(b"".join(frames), np.array(counts, np.int64))


def find_even_frames(data: bytes | bytearray, start: int) -> tuple[tuple[bytes, int], int] | None:
    """((bytes of the frames, number of pdfs of each), end) of the binary posterior at `start`.

    None unless the frames have one number of pdfs; IndexError if the data end too early.
    """
    if (begin := start + 5) + 5 > len(data):
        raise IndexError
    num_frames, count = struct.unpack("<xixi", data[start : begin + 5])
    width = 5 + 10 * count
    end = begin + num_frames * width
    if data[start] != 4 or num_frames <= 0 or count < 0:
        return None
    if end > len(data):
        raise IndexError
    is_even = all(
        data[i:end:width] == data[i : i + 1] * num_frames for i in range(begin, begin + 5)
    )
    if not is_even or data[begin:end:5] != b"\4" * ((end - begin) // 5):
        return None
    return (bytes(data[begin:end]), count), end


def frames_of_bytes(data: bytes, counts: NDArray[np.int64]) -> Posterior:
    """The posterior of valid frames in binary form; frame f has `counts[f]` pdfs."""
    offsets = offsets_of(counts)
    raw = np.frombuffer(data, np.uint8).reshape(-1, 5)
    cells = np.ascontiguousarray(raw[:, 1:]).view("<i4").ravel()
    is_entry = np.ones(len(cells), bool)
    is_entry[np.arange(len(counts)) + 2 * offsets[:-1].astype(np.int64)] = False
    pdfs, weights = cells[is_entry].reshape(-1, 2).T
    return Posterior(offsets, pdfs.copy(), weights.copy().view("<f4"))


def _peek_count(reader: Reader) -> int:
    while len(head := reader.buffered(5)) < 5:
        if not reader.more():
            raise reader.error("expected a frame of a posterior, found the end of the stream")
    count = int.from_bytes(head[1:], "little", signed=True)
    if head[0] != 4 or count < 0:
        raise reader.error("expected the number of pdfs of a frame")
    return count
