"""The one reader of numbers in text from users: in options, fields of files, and configs."""

from __future__ import annotations

import re
from collections.abc import Iterable

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1

_BLANKS = " \t\n\r\v\f"
_INTEGER = re.compile(r"([-+]?)0*([0-9]{1,19})")  # int() is quadratic, and raises, for many digits
_DOUBLE = re.compile(
    r"[-+]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:e[-+]?[0-9]++)?|inf|infinity|nan)", re.I | re.A
)


def parse_int(text: str, least: int = INT32_MIN, most: int = INT32_MAX) -> int | None:
    """The integer in text of ASCII digits; None for other text or a number outside [least, most].

    Blanks around the number, a sign and leading zeros are allowed.
    """
    if (match := _INTEGER.fullmatch(text.strip(_BLANKS))) is None:
        return None
    value = int(match[1] + match[2])
    return value if least <= value <= most else None


def parse_counts(texts: Iterable[str], least: int = 0) -> list[int] | None:
    """The integers from `least` to 2^31 - 1 in the texts; None if one holds anything else."""
    values = [parse_int(text, least) for text in texts]
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def parse_double(text: str) -> float | None:
    """The number in the text, infinite and NaN included; None for other text."""
    text = text.strip(_BLANKS)
    return float(text) if _DOUBLE.fullmatch(text) else None
