"""Kernels as C text, and jobs: kernels with the arguments for some arrays."""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.plain.addresses import address

_FLOAT, _WORD = struct.Struct("=d"), struct.Struct("=q")

__all__ = ["Formula", "Job", "Kernel", "Number", "Words", "indented"]


@dataclass(frozen=True)
class Kernel:
    """A C function of arguments `w` that does the steps [begin, end) of its outermost loop."""

    body: str

    @functools.cached_property
    def name(self) -> str:
        """The function's name, which its text decides."""
        return "k_" + hashlib.sha256(self.body.encode()).hexdigest()[:24]

    @property
    def text(self) -> str:
        """The whole function."""
        return f"void {self.name}(const word *w, i64 begin, i64 end) {{\n{self.body}}}\n"


class Number:
    """An argument that is not an address, size or stride: a float."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value


@dataclass(frozen=True)
class Formula:
    """Assignments and the operands that they are done to."""

    assignments: Assignments
    operands: tuple[Any, ...]


class Job:
    """A kernel bound to arguments: arrays (by address), Numbers and integers.

    `steps` is the size of the outermost loop, `work` about how many elements all steps touch.
    """

    __slots__ = ("alive", "formula", "in_order", "kernel", "steps", "words", "work")

    def __init__(self, kernel: Kernel, arguments: Sequence[Any], steps: int, work: int) -> None:
        self.kernel, self.steps, self.work = kernel, steps, work
        self.in_order = False
        """Whether steps may write to the same places."""
        self.formula: Formula | None = None
        """What it does, if that is an elementwise formula."""
        self.words, self.alive = _words(arguments)

    @classmethod
    def of_words(cls, kernel: Kernel, words: np.ndarray, alive: list[np.ndarray], steps: int,
                 work: int) -> Job:  # fmt: skip
        """A job whose arguments are known as words."""
        made = cls.__new__(cls)
        made.kernel, made.words, made.alive = kernel, words, alive
        made.steps, made.work, made.in_order, made.formula = steps, work, False, None
        return made


def _words(arguments: Sequence[Any]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Arguments as words, and the arrays among them."""
    words, alive = [], []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            words.append(address(argument))
            alive.append(argument)
        elif isinstance(argument, Number):
            words.append(_WORD.unpack(_FLOAT.pack(argument.value))[0])
        else:
            words.append(int(argument))
    return np.array(words or [0], np.int64), alive


class Words:
    """Arguments as words, with places for the arrays' addresses and the Numbers of another time."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self._arrays = [i for i, a in enumerate(arguments) if isinstance(a, np.ndarray)]
        self._numbers = [i for i, a in enumerate(arguments) if isinstance(a, Number)]
        self._words = np.zeros(max(1, len(arguments)), np.int64)
        for i, argument in enumerate(arguments):
            if not isinstance(argument, (np.ndarray, Number)):
                self._words[i] = argument

    def filled(self, arguments: Sequence[Any]) -> np.ndarray:
        """The words of arguments which differ from those given before in arrays and Numbers."""
        words = self._words.copy()
        for i in self._arrays:
            words[i] = address(arguments[i])
        if self._numbers:
            values = words.view(np.float64)
            for i in self._numbers:
                values[i] = arguments[i].value
        return words


def indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    """Lines moved to the right."""
    return ["  " * depth + line for line in lines]
