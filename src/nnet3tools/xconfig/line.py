"""Lines of an xconfig file: `layer-type key=value key=value`.

A value runs to the next `key=`, so `input=Append(a, b) dim=3` needs no quotes; "..." encloses a
value in which `=` stands; `#` starts a comment anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nnet3tools.errors import ConfigError

__all__ = ["XconfigLine", "read_lines"]

_ODD_CHARACTER = re.compile(r'[^\w\-.()\[\]@=,/+:\s"]', re.ASCII)
_LAYER_TYPE = re.compile(r"[a-z][-a-z0-9]+\Z")
_QUOTED = re.compile(r'"([^"]*)"')
_KEY = re.compile(r"\s*([-\w]*)=", re.ASCII)
_EQUALS = "\0"
"""Stands for a quoted = while a line is taken apart."""


@dataclass(frozen=True)
class XconfigLine:
    """One line: the type of its layer, its values by key, and where it stands."""

    layer_type: str
    values: dict[str, str]
    text: str
    file: str
    number: int

    def error(self, message: str) -> ConfigError:
        """A ConfigError about this line, to be raised."""
        return ConfigError(message, self.file, self.number, self.text)


def read_lines(text: str, file: str) -> list[XconfigLine]:
    """The lines of an xconfig file without comments and blank lines; ConfigError for a bad one."""
    lines = []
    for number, raw in enumerate(text.split("\n"), start=1):
        if stripped := " ".join(raw.split("#", 1)[0].split()):
            lines.append(_parse(stripped, file, number))
    if not lines:
        raise ConfigError("no layers: the xconfig file is empty", file)
    return lines


def _parse(text: str, file: str, number: int) -> XconfigLine:
    shown = text if text.isascii() and text.isprintable() else ""

    def error(message: str) -> ConfigError:
        return ConfigError(message, file, number, shown)

    if odd := _ODD_CHARACTER.search(text):
        hint = '; values that contain = stand in "..."' if odd[0] == "'" else ""
        raise error(f"character {odd[0]!a} is not allowed{hint}")
    layer_type, _, rest = text.partition(" ")
    if not _LAYER_TYPE.match(layer_type):
        raise error(f"expected a layer type such as relu-layer, found '{layer_type}'")
    masked = _QUOTED.sub(lambda quoted: f" {quoted[1].replace('=', _EQUALS)} ", rest)
    if '"' in masked:
        raise error("double quotes do not come in pairs")
    head, *pairs = _KEY.split(masked)
    if head.strip():
        raise error(f"expected key=value, found '{head.replace(_EQUALS, '=').strip()}'")
    values: dict[str, str] = {}
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not re.match("[A-Za-z_]", key):
            raise error(f"expected key=value, found '{key}='")
        if key in values:
            raise error(f"'{key}' is given twice")
        values[key] = value.replace(_EQUALS, "=").strip()
    return XconfigLine(layer_type, values, text, file, number)
