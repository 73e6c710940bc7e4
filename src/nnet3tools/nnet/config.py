"""Parsing of config lines: `first-token key=value key=value`, with Kaldi's grammar (text-utils.cc).

A value extends to the last blank before the next `=`, so `input=Append(a, b) dim=3` needs no
quotes. '...' and "..." quote, without escapes. `#` starts a comment anywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from nnet3tools.errors import ConfigError
from nnet3tools.number_text import INT32_MIN, parse_counts, parse_double, parse_int

D = TypeVar("D")
V = TypeVar("V")

_REQUIRED: Any = object()

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_KEY_VALUE = re.compile(r"\s*([^=]*)=")

MAX_LINE = 1 << 22
"""Limit on characters of a config line: half a million terms of a descriptor, which take 1 GB."""

_LINE = re.compile(r"\S[^\n]*")
"""The rest of a line from its first visible character."""


def is_valid_name(name: str) -> bool:
    """Whether Kaldi accepts the name for a node or component."""
    return _NAME.match(name) is not None


def parse_float(text: str) -> float | None:
    """Convert text to a float32 value (as a Python float); None if it is not a number."""
    if (value := parse_double(text)) is None:
        return None
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def parse_finite(text: str) -> float | None:
    """Convert text to a finite float32 value; None for other text."""
    value = parse_float(text)
    return value if value is not None and math.isfinite(value) else None


def _parse_ints(text: str) -> list[int] | None:
    """Convert text to integers separated by `,` or `:`; None if a part is not an int32."""
    return parse_counts(filter(None, re.split("[,:]", text)), INT32_MIN)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """The text ` (did you mean 'x'?)` with the most similar known name, or ""."""
    import difflib  # needed for errors only

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean '{near[0]}'?)" if near else ""


def name_matches_pattern(name: str, pattern: str) -> bool:
    """Whether the whole name matches a pattern in which only `*` is special."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


class ConfigLine:
    """A config line: its first token, its values by key, and the keys that were read.

    `known_keys` are the keys that were asked for, in order, whether or not the line has them.

    Each `get_*` method returns the value of a key, or `default` if the key is absent. Without a
    default, or if the value has another type, it raises ConfigError.
    """

    def __init__(self, text: str, file: str = "", line_number: int = 0) -> None:
        self.text, self.file, self.line_number = text, file, line_number
        self.first_token = ""
        self._values: dict[str, str] = {}
        self._used: set[str] = set()
        self.known_keys: list[str] = []
        self._parse()

    @classmethod
    def of(
        cls, first_token: str, values: dict[str, str], text: str, file: str, line_number: int
    ) -> ConfigLine:
        """Make a line from values that a grammar has parsed; `text` and position are for errors."""
        line = cls.__new__(cls)
        line.text, line.file, line.line_number = text, file, line_number
        line.first_token, line._values, line._used = first_token, values, set()
        line.known_keys = []
        return line

    def _parse(self) -> None:
        text = self.text.rstrip()
        start = len(text) - len(text.lstrip())
        first = text[start:].split(maxsplit=1)[0] if start < len(text) else ""
        if not first:
            raise self.error("empty line")
        position = start
        if "=" not in first:
            if not is_valid_name(first):
                raise self.error(f"'{first}' cannot start a line")
            self.first_token, position = first, start + len(first)
        while position < len(text):
            position = self._parse_value(text, position)

    def _parse_value(self, text: str, position: int) -> int:
        """Parse a key=value pair that starts at `position`; return the position after it."""
        if (match := _KEY_VALUE.match(text, position)) is None:
            raise self.error(f"expected key=value, found '{text[position:].strip()}'")
        key, start = match[1], match.end()
        if not is_valid_name(key):
            raise self.error(f"expected key=value, found '{key}='")
        if text[start : start + 1] in ("'", '"'):
            end = text.find(text[start], start + 1)
            if end < 0:
                raise self.error(f"no matching {text[start]} for the value of '{key}'")
            self._values.setdefault(key, text[start + 1 : end])
            return end + 1
        end = len(text)
        if (next_equals := text.find("=", start)) >= 0:
            blank = max(text.rfind(" ", start, next_equals), text.rfind("\t", start, next_equals))
            end = blank if blank >= 0 else end
        value = text[start:end].rstrip()
        self._values.setdefault(key, value)
        return end

    def __contains__(self, key: str) -> bool:
        self._note(key)
        return key in self._values

    def _note(self, key: str) -> None:
        if key not in self.known_keys:
            self.known_keys.append(key)

    def error(self, message: str) -> ConfigError:
        """Make a ConfigError about this line."""
        return ConfigError(message, self.file, self.line_number, self.text)

    def _value_text(self, key: str, default: Any) -> str | None:
        """The text of a key's value, marked as read; None if absent and there is a default."""
        self._note(key)
        if key in self._values:
            self._used.add(key)
            return self._values[key]
        if default is _REQUIRED:
            raise self.error(f"missing required key '{key}'{nearest_hint(key, self.unused_keys())}")
        return None

    def get_string(self, key: str, default: str | D = _REQUIRED) -> str | D:
        """The value of a key as text, or `default` if the key is absent; or ConfigError."""
        text = self._value_text(key, default)
        return default if text is None else text

    def _get(self, key: str, default: D, parse: Callable[[str], V | None], kind: str) -> V | D:
        """The value of a key as `parse` converts it, or `default` if the key is absent.

        ConfigError, which says that `kind` (such as "an integer") was expected, if `parse` returns
        None.
        """
        if (text := self._value_text(key, default)) is None:
            return default
        if (value := parse(text)) is None:
            raise self.error(f"expected {kind} for '{key}', found '{text}'")
        return value

    def get_int(self, key: str, default: int | D = _REQUIRED) -> int | D:
        """The value of a key as an int32, or `default` if the key is absent; or ConfigError."""
        return self._get(key, default, parse_int, "an integer")

    def get_float(self, key: str, default: float | D = _REQUIRED) -> float | D:
        """The value of a key in float32, or `default` if the key is absent; or ConfigError."""
        return self._get(key, default, parse_finite, "a number")

    def get_bool(self, key: str, default: bool | D = _REQUIRED) -> bool | D:
        """The value of a key as a bool, or `default`; as in Kaldi, only its t or f is read."""
        truth = {"t": True, "T": True, "f": False, "F": False}
        return self._get(key, default, lambda text: truth.get(text[:1]), "true or false")

    def get_int_list(self, key: str, default: list[int] | D = _REQUIRED) -> list[int] | D:
        """A key's integers, separated by `,` or `:`; `default` if it is absent; or ConfigError."""
        return self._get(key, default, _parse_ints, "integers separated by ','")

    def unused_keys(self) -> list[str]:
        """The keys that were not read, sorted."""
        return sorted(set(self._values) - self._used)

    def unused_values(self) -> str:
        """The `key=value` pairs that were not read, for an error message."""
        return " ".join(f"{key}={self._values[key]}" for key in self.unused_keys())

    def check_all_used(self) -> None:
        """Raise ConfigError, which lists the known keys, if the line has an unknown key."""
        if unused := self.unused_keys():
            hint = (
                f"{nearest_hint(unused[0], self.known_keys)}; known: {', '.join(self.known_keys)}"
            )
            raise self.error(f"unknown or unused values '{self.unused_values()}'{hint}")


def parse_config_lines(text: str, file: str = "") -> list[ConfigLine]:
    """Parse a config file, skipping comments and blank lines; ConfigError for a wrong line."""
    lines, number, counted = [], 1, 0
    for found in _LINE.finditer(text):
        number += text.count("\n", counted, found.start())
        counted = found.start()
        if found.end() - found.start() > MAX_LINE:
            length = found.end() - found.start()
            raise ConfigError(f"a line of {length} characters: at most {MAX_LINE}", file, number)
        if stripped := found[0].split("#", 1)[0].strip():
            lines.append(ConfigLine(stripped, file, number))
    return lines
