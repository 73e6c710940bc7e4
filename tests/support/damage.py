"""Seeded damage to files: what a disk, a network, an editor or a liar may do to them."""

from __future__ import annotations

import re
import struct

import numpy as np

__all__ = ["damaged"]

_EXTREMES = (0, 1, -1, 2, 255, 1 << 16, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 28)
_WORDS = (
    "-1", "0", "1", "2", "7", "99999999999", "2147483647", "-2147483648", "1e30", "nan", "inf",
    "-inf", "0.5", "x", "", "[", "]", "T", "F", "true", "false", "<X>", "=", "\n", "\0", "é",
)  # fmt: skip
_NUMBER = re.compile(rb"(?<![\w.])-?\d{1,9}(?![\w.])")
_SIZED = re.compile(rb"\x04[^\0]\0\0\0", re.S)
_WORD = re.compile(rb"[^\s=,()\[\]]+")


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The file after one accident, or a few."""
    for _ in range(int(rng.choice([1, 1, 1, 1, 2, 3]))):
        data = _KINDS[int(rng.integers(len(_KINDS)))](data, rng)
    return data


def _cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: _place(data, rng)]


def _remove(data: bytes, rng: np.random.Generator) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + int(rng.integers(1, 9)) :]


def _insert(data: bytes, rng: np.random.Generator) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.bytes(int(rng.integers(1, 9))) + data[at:]


def _flip_bits(data: bytes, rng: np.random.Generator) -> bytes:
    flipped = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if flipped:
            flipped[_place(data, rng)] ^= 1 << int(rng.integers(8))
    return bytes(flipped)


def _set_integer(data: bytes, rng: np.random.Generator) -> bytes:
    """Some four bytes become a number that sizes and indexes should not have."""
    at = _place(data, rng)
    value = struct.pack("<i", _EXTREMES[int(rng.integers(len(_EXTREMES)))])
    return data[:at] + value + data[at + 4 :]


def _set_sized_integer(data: bytes, rng: np.random.Generator) -> bytes:
    r"""The same to an integer that has its size byte before it (Kaldi's basic types)."""
    places = [m.start() + 1 for m in re.finditer(rb"\x04", data)]
    if not places:
        return _set_word(data, rng)
    at = places[int(rng.integers(len(places)))]
    value = struct.pack("<i", _EXTREMES[int(rng.integers(len(_EXTREMES)))])
    return data[:at] + value + data[at + 4 :]


def _set_word(data: bytes, rng: np.random.Generator) -> bytes:
    """A word (token, number, value of a key) becomes another."""
    words = list(_WORD.finditer(data))
    if not words:
        return data
    word = words[int(rng.integers(len(words)))]
    new = _WORDS[int(rng.integers(len(_WORDS)))].encode()
    if rng.random() < 0.3:
        new = words[int(rng.integers(len(words)))].group()
    return data[: word.start()] + new + data[word.end() :]


def _nudge(data: bytes, rng: np.random.Generator) -> bytes:
    """A whole number becomes one near it: the file stays well formed and no longer fits."""
    numbers = list(_NUMBER.finditer(data))
    sized = list(_SIZED.finditer(data))
    if sized and (not numbers or rng.random() < 0.7):
        at = sized[int(rng.integers(len(sized)))].start() + 1
        (value,) = struct.unpack_from("<i", data, at)
        value = int(np.clip(value + int(rng.choice([-2, -1, 1, 2, 50])), -(1 << 31), (1 << 31) - 1))
        return data[:at] + struct.pack("<i", value) + data[at + 4 :]
    if not numbers:
        return data
    number = numbers[int(rng.integers(len(numbers)))]
    value = int(number.group()) + int(rng.choice([-2, -1, 1, 2, 50]))
    return data[: number.start()] + str(value).encode() + data[number.end() :]


def _repeat(data: bytes, rng: np.random.Generator) -> bytes:
    start, end = sorted((_place(data, rng), _place(data, rng)))
    return data[:end] + data[start:]


def _place(data: bytes, rng: np.random.Generator) -> int:
    return int(rng.integers(max(1, len(data))))


_KINDS = (
    _cut, _remove, _insert, _flip_bits, _set_integer, _set_sized_integer, _set_sized_integer,
    _set_word, _set_word, _set_word, _repeat, _nudge, _nudge, _nudge, _nudge,
)  # fmt: skip
