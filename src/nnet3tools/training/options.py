"""Declaring program options as fields of frozen dataclasses, with their help texts."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeVar

__all__ = ["option"]

T = TypeVar("T")


def option(default: T, text: str) -> T:
    """A dataclass field that cli/options.py shows as `--name`, with this default and help text."""
    declared: Any = field(default=default, metadata={"help": text})
    return declared
