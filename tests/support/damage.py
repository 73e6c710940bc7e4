"""Damaged files as a hypothesis strategy: what disks, networks, editors or liars do to files."""

import re
import struct
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

_INTEGERS = st.sampled_from(
    (0, 1, -1, 2, 255, 1 << 16, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 28)
)
_FLOATS = st.sampled_from((float("nan"), float("inf"), -float("inf"), 3e38, -1e-45))
_STEPS = st.sampled_from((-2, -1, 1, 2, 50))
_WORDS = st.sampled_from(
    (b"-1", b"0", b"1", b"2", b"7", b"99999999999", b"2147483647", b"-2147483648", b"1e30", b"nan",
     b"inf", b"-inf", b"0.5", b"x", b"", b"[", b"]", b"T", b"F", b"true", b"false", b"<X>", b"=",
     b"\n", b"\0", b"\xc3\xa9")
)  # fmt: skip
_RUNS = st.sampled_from(
    (b"9", b"(", b"[", b" ", b"a", b"\n", b"-", b"1 ", b"1,", b"0.", b"Sum(", b"Offset(", b"\0",
     b"\xff", b"=", b"{", b"<X> ", b"\x04\x01\0\0\0", b"e9", b"'", b'"', b"#", b"NULL ", b"!")
)  # fmt: skip
_NUMBER = re.compile(rb"(?<![\w.])-?\d{1,9}(?![\w.])")
_SIZED = re.compile(rb"\x04[^\0]\0\0\0", re.S)
_WORD = re.compile(rb"[^\s=,()\[\]]+")

Change = Callable[[st.DrawFn, bytes, bytes], bytes]
"""Draws one accident to a file; the third argument is another good file of the same kind."""


def _place(draw: st.DrawFn, data: bytes) -> int:
    return draw(st.integers(0, max(0, len(data) - 1)))


def _match(draw: st.DrawFn, pattern: re.Pattern[bytes], data: bytes) -> re.Match[bytes] | None:
    matches = list(pattern.finditer(data))
    return draw(st.sampled_from(matches)) if matches else None


def _cut(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    return data[: _place(draw, data)]


def _remove(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    at = _place(draw, data)
    return data[:at] + data[at + draw(st.integers(1, 8)) :]


def _insert(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    at = _place(draw, data)
    return data[:at] + draw(st.binary(min_size=1, max_size=8)) + data[at:]


def _flip_bit(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    at = _place(draw, data)
    bit = 1 << draw(st.integers(0, 7))
    return data[:at] + bytes(byte ^ bit for byte in data[at : at + 1]) + data[at + 1 :]


def _set_integer(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Replace four bytes, if possible those of an integer with its size byte before it."""
    sized = _match(draw, re.compile(rb"\x04"), data) if draw(st.booleans()) else None
    at = sized.end() if sized else _place(draw, data)
    return data[:at] + struct.pack("<i", draw(_INTEGERS)) + data[at + 4 :]


def _set_float(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Replace a float or double by NaN, infinity or an extreme number."""
    sized = _match(draw, re.compile(rb"[\x04\x08]"), data)
    at = sized.end() if sized else _place(draw, data)
    number = struct.pack(draw(st.sampled_from(("<f", "<d"))), draw(_FLOATS))
    return data[:at] + number + data[at + len(number) :]


def _set_word(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Replace a token, number or value of a key."""
    if (word := _match(draw, _WORD, data)) is None:
        return data
    own = st.sampled_from(_WORD.findall(data))
    return data[: word.start()] + draw(_WORDS | own) + data[word.end() :]


def _nudge(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Change a whole number a little: the file stays well formed and no longer fits."""
    if draw(st.booleans()) and (sized := _match(draw, _SIZED, data)):
        (value,) = struct.unpack_from("<I", data, sized.start() + 1)
        number = struct.pack("<I", (value + draw(_STEPS)) % (1 << 32))
        return data[: sized.start() + 1] + number + data[sized.end() :]
    if (found := _match(draw, _NUMBER, data)) is None:
        return data
    number = str(int(found.group()) + draw(_STEPS)).encode()
    return data[: found.start()] + number + data[found.end() :]


def _repeat(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    start, end = sorted((_place(draw, data), _place(draw, data)))
    return data[:end] + data[start:]


def _splice(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    return data[: _place(draw, data)] + other[_place(draw, other) :]


def _insert_words(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Insert up to four words of the other file before a word."""
    first, place = _match(draw, _WORD, other), _match(draw, _WORD, data)
    if first is None or place is None:
        return data
    words = re.compile(rb"(?:\S+\s*){1,%d}" % draw(st.integers(1, 4))).match(other, first.start())
    text = words.group() if words else b""
    return data[: place.start()] + text + b" " + data[place.start() :]


def _move_line(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Delete, repeat or insert a line, or end it with a carriage return."""
    lines = data.split(b"\n")
    at = draw(st.integers(0, len(lines) - 1))
    new = (*lines, *other.split(b"\n"), lines[at] + b"\r")
    replaced = draw(st.integers(0, 1))
    inserted = draw(st.lists(st.sampled_from(new), max_size=1))
    return b"\n".join([*lines[:at], *inserted, *lines[at + replaced :]])


def _lengthen(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Insert a long run of one text."""
    at = _place(draw, data)
    return data[:at] + draw(_RUNS) * draw(st.sampled_from((3, 30, 300, 3000))) + data[at:]


def _other_form(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Call text binary, or binary text."""
    return data.replace(b"\0B", b"", 1) if b"\0B" in data else b"\0B" + data


_CHANGES: tuple[Change, ...] = (
    _nudge, _set_word, _set_integer, _set_float, _cut, _remove, _insert, _flip_bit, _repeat,
    _splice, _insert_words, _move_line, _lengthen, _other_form,
)  # fmt: skip


@st.composite
def damaged_files(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """One of the samples after one to three accidents; some bring in parts of other samples."""
    files = st.sampled_from(samples)
    data = draw(files)
    for change in draw(st.lists(st.sampled_from(_CHANGES), min_size=1, max_size=3)):
        data = change(draw, data, draw(files))
    return data
