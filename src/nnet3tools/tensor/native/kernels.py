"""Kernels as C text, and jobs: kernels with the arguments for some arrays."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools.tensor.numpy_backend.addresses import address

__all__ = ["Job", "Kernel", "Number", "indented"]


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


class Job:
    """A kernel bound to arguments: arrays (by address), Numbers and integers.

    `steps` is the size of the outermost loop, `work` about how many elements all steps touch.
    """

    __slots__ = ("alive", "in_order", "kernel", "steps", "words", "work")

    def __init__(self, kernel: Kernel, arguments: Sequence[Any], steps: int, work: int) -> None:
        self.kernel, self.steps, self.work = kernel, steps, work
        self.in_order = False
        """Whether steps may write to the same places."""
        self.words = np.empty(max(1, len(arguments)), np.int64)
        numbers = self.words.view(np.float64)
        for i, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                self.words[i] = address(argument)
            elif isinstance(argument, Number):
                numbers[i] = argument.value
            else:
                self.words[i] = argument
        self.alive = [a for a in arguments if isinstance(a, np.ndarray)]


def indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    """Lines moved to the right."""
    return ["  " * depth + line for line in lines]
