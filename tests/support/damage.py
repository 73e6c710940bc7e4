"""Seeded damage to files: what a disk, a network, an editor or a liar may do to them."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import numpy as np

__all__ = ["damaged", "mutated"]

_EXTREMES = (0, 1, -1, 2, 255, 1 << 16, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 28)
_WORDS = (
    "-1", "0", "1", "2", "7", "99999999999", "2147483647", "-2147483648", "1e30", "nan", "inf",
    "-inf", "0.5", "x", "", "[", "]", "T", "F", "true", "false", "<X>", "=", "\n", "\0", "é",
)  # fmt: skip
_RUNS = (
    b"9", b"(", b"[", b" ", b"a", b"\n", b"-", b"1 ", b"1,", b"0.", b"Sum(", b"Offset(", b"\0",
    b"\xff", b"=", b"{", b"<X> ", b"\x04\x01\0\0\0", b"e9", b"'", b'"', b"#", b"NULL ", b"!",
)  # fmt: skip
_NUMBER = re.compile(rb"(?<![\w.])-?\d{1,9}(?![\w.])")
_SIZED = re.compile(rb"\x04[^\0]\0\0\0", re.S)
_WORD = re.compile(rb"[^\s=,()\[\]]+")


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The file after one accident, or a few."""
    for _ in range(int(rng.choice([1, 1, 1, 1, 2, 3]))):
        data = _KINDS[int(rng.integers(len(_KINDS)))](data, rng)
    return data


def mutated(samples: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """One of the samples after accidents, some of which bring in pieces of other samples."""
    data = samples[int(rng.integers(len(samples)))]
    if rng.random() < 0.7:
        return damaged(data, rng)
    for _ in range(int(rng.choice([1, 1, 2, 4]))):
        other = samples[int(rng.integers(len(samples)))]
        kind = _MIXING[int(rng.integers(len(_MIXING)))]
        data = kind(data, other, rng)
    return damaged(data, rng) if rng.random() < 0.3 else data


def _splice(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    return data[: _place(data, rng)] + other[_place(other, rng) :]


def _bring_words(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """A few words of another file, at the beginning of a word."""
    words, places = list(_WORD.finditer(other)), list(_WORD.finditer(data))
    if not words or not places:
        return data
    first = int(rng.integers(len(words)))
    last = min(first + int(rng.integers(1, 5)), len(words)) - 1
    at = places[int(rng.integers(len(places)))].start()
    return data[:at] + other[words[first].start() : words[last].end()] + b" " + data[at:]


def _move_lines(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """A line leaves, comes twice, or comes from the other file."""
    lines, others = data.split(b"\n"), other.split(b"\n")
    at = int(rng.integers(len(lines)))
    way = int(rng.integers(4))
    if way == 0:
        del lines[at]
    elif way == 1:
        lines.insert(at, lines[int(rng.integers(len(lines)))])
    elif way == 2:
        lines.insert(at, others[int(rng.integers(len(others)))])
    else:
        lines[at] = lines[at] + b"\r"
    return b"\n".join(lines)


def _lengthen(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """A long run of one thing."""
    piece = _RUNS[int(rng.integers(len(_RUNS)))]
    at = _place(data, rng)
    return data[:at] + piece * int(rng.choice([3, 30, 300, 3000])) + data[at:]


def _not_finite(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Four or eight bytes become NaN, infinity or a huge number."""
    value = float(rng.choice([np.nan, np.inf, -np.inf, 3e38, -1e-45]))
    piece = struct.pack("<f" if rng.random() < 0.7 else "<d", value)
    sized = [m.start() + 1 for m in re.finditer(rb"[\x04\x08]", data)]
    at = sized[int(rng.integers(len(sized)))] if sized else _place(data, rng)
    return data[:at] + piece + data[at + len(piece) :]


def _other_form(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Text becomes binary for the reader, and the other way round."""
    return data.replace(b"\0B", b"", 1) if b"\0B" in data else b"\0B" + data


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

_MIXING = (
    _splice, _splice, _bring_words, _bring_words, _bring_words, _move_lines, _move_lines, _lengthen,
    _not_finite, _not_finite, _other_form,
)  # fmt: skip
