"""Text messages of clients, in vosk-server's WebSocket protocol."""

from __future__ import annotations

import json
import math
from enum import Enum
from typing import Any

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.features.sound_features import RATES
from nnet3tools.number_text import parse_double

MAX_ALTERNATIVES = 100
_MAX_TEXT = 1 << 16
"""Characters of a text message; a list of phrases is the longest that clients send."""


class Command(Enum):
    """A client's request for the final result: EOF ends the sound, RESET begins a new recording."""

    EOF = "eof"
    RESET = "reset"


@dataclass(frozen=True)
class StreamConfig:
    """A client's settings for its stream; `words` asks for times and confidences of words.

    `has_phrase_list` says that the client sent a list of phrases, which has no effect.
    """

    sample_rate: float
    words: bool = True
    max_alternatives: int = 0
    """Number of alternative results; if it is 0, there is one result, with confidences."""
    has_phrase_list: bool = False


def parse_text(text: str, config: StreamConfig) -> StreamConfig | Command:
    """The command of a text message, or `config` with the settings that the message changes.

    DataError for a message that is not one of {"config": {...}}, {"eof": 1} and {"reset": 1}.
    """
    if len(text) > _MAX_TEXT:
        raise DataError(f"a text message of {len(text)} characters: at most {_MAX_TEXT}")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        found = quoted(text) or "nothing"
        raise DataError(f"expected a JSON object, found {found}") from None
    if isinstance(message, dict):
        if isinstance(settings := message.get("config"), dict):
            return _changed(config, settings)
        for command in Command:
            if message.get(command.value) in (1, True):
                return command
    raise DataError(
        f'expected {{"config": {{...}}}}, {{"eof": 1}} or {{"reset": 1}}, found {quoted(text)}'
    )


def _changed(config: StreamConfig, settings: dict[str, Any]) -> StreamConfig:
    """A copy of `config` with the values of `settings`; settings with unknown names are ignored."""
    if "model" in settings:
        raise DataError("config: this server has one model, which clients cannot change")
    if settings.get("phrase_list"):
        config = replace(config, has_phrase_list=True)
    if "sample_rate" in settings:
        rate = _number("sample_rate", settings["sample_rate"])
        if not RATES[0] <= rate <= RATES[1]:
            raise DataError(
                f"config: sample_rate must be from {RATES[0]} to {RATES[1]}, found {rate:g}"
            )
        config = replace(config, sample_rate=rate)
    if "words" in settings:
        config = replace(config, words=bool(settings["words"]))
    if "max_alternatives" in settings:
        count = _number("max_alternatives", settings["max_alternatives"])
        if count != int(count) or not 0 <= count <= MAX_ALTERNATIVES:
            raise DataError(
                f"config: max_alternatives must be from 0 to {MAX_ALTERNATIVES}, found {count:g}"
            )
        config = replace(config, max_alternatives=int(count))
    return config


def _number(name: str, value: object) -> float:
    """Convert a setting to a finite float; it is a number or, as in vosk-server, its text."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        number = parse_double(str(value))
        if number is not None and math.isfinite(number):
            return number
    raise DataError(f"config: {name} must be a number, found {quoted(repr(value))}")
