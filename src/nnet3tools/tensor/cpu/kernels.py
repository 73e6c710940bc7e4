"""Kernels as C text, and jobs: kernels with the arguments for some arrays."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nnet3tools.digests import sha256
from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.registry import Operator, load_module


@dataclass(frozen=True)
class Kernel:
    """A C function `NAME(const word *w, i64 begin, i64 end)`; `text` is the source that defines it.

    `w` are its arguments; it does steps `begin` to `end` - 1 of its outermost loop.
    """

    name: str
    text: str

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of_body(cls, body: str) -> Kernel:
        """The kernel with the C text `body` in its braces; its name is a digest of the body."""
        name = "k_" + sha256(body.encode()).hexdigest()[:24]
        return cls(name, f"void {name}(const word *w, i64 begin, i64 end) {{\n{body}}}\n")


@dataclass(frozen=True)
class FileKernel(Kernel):
    """A kernel of a .c file, whose whole text is `text`.

    Its arguments are a struct, whose `fields` map names to kinds: "*" (pointer), "i64" or "f64".
    """

    fields: dict[str, str]

    def job(self, steps: int, work: int, **arguments: Any) -> Job:
        """A job of this kernel: `arguments` are the values of the struct's fields; None is NULL.

        `steps` is the size of the outermost loop, `work` the approximate number of elements.
        """
        if arguments.keys() != self.fields.keys():
            wrong = sorted(arguments.keys() ^ self.fields.keys())
            raise ProgramError(f"kernel {self.name}: missing or unknown arguments {wrong}")
        words = np.zeros(max(1, len(arguments)), np.int64)
        alive = []
        for i, (name, kind) in enumerate(self.fields.items()):
            value = arguments[name]
            if value.__class__ is np.ndarray:
                alive.append(value)
                words[i] = address(value)
            elif kind == "f64":
                words.view(np.float64)[i] = value
            elif value is not None:
                words[i] = value
        return Job(self, words, alive, steps, work)


_STRUCT = re.compile(r"typedef struct \{(.*?)\} (?:TYPED\()?(\w+)", re.S)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_KERNEL = re.compile(
    r"^void (?:TYPED\()?(\w+)\)?\(const (?:TYPED\()?(\w+)\)? \*\w+, i64 begin, i64 end\)", re.M
)


def read_source(folder: str, name: str) -> str:
    """The text of the C file `name` in a folder."""
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


@functools.cache
def kernels_of_file(
    module: str, element_type: str = "", name: str = "kernel.c"
) -> dict[str, FileKernel]:
    """The kernels of the file `name` beside the Python file `module`, by function name.

    `element_type` is the C type for T in the file.
    A kernel is `void NAME(const STRUCT *arguments, i64 begin, i64 end)`. In a file for several
    types NAME and STRUCT are written as TYPED(NAME), which adds the type to the name.
    """
    folder = os.path.dirname(module)
    text = read_source(folder, name)
    structs = {name: fields_of_struct(body) for body, name in _STRUCT.findall(text)}
    suffix = element_type and f"_{element_type}"
    if element_type:
        text = f"#define T {element_type}\n{text}#undef T\n"
    origin = f"/* {os.path.basename(folder)}/{name} */\n"
    return {
        name: FileKernel(name + suffix, origin + text, structs[struct_name])
        for name, struct_name in _KERNEL.findall(text)
    }


def fields_of_struct(body: str) -> dict[str, str]:
    """The fields of a C struct, name -> kind ("*", "i64" or "f64"), read from its body."""
    found = {}
    for declaration in _COMMENT.sub("", body).split(";"):
        first, *others = declaration.strip().split(",")
        kind, _, name = first.rpartition(" ")
        for each in (name, *others) if kind else ():
            found[each.strip(" *")] = "*" if "*" in each else kind
    return found


def has_rows(matrix: Any) -> bool:
    """Whether a matrix is float32 and has contiguous rows, as kernels in C files expect."""
    aligned = matrix.strides[1] == 4 and matrix.strides[0] % 4 == 0
    return matrix.dtype == np.float32 and (aligned or matrix.shape[1] == 1)


JobMaker = Callable[..., "list[Job] | None"]
_job_makers: dict[str, JobMaker] = {}


def makes_jobs(name: str) -> Callable[[JobMaker], JobMaker]:
    """Decorator that registers a function which turns calls of operator `name` into compiled jobs.

    The function takes the call's operands and returns None if NumPy has to make the call. It is in
    `cpu.py` of the operator's folder.
    """

    def register(function: JobMaker) -> JobMaker:
        _job_makers[name] = function
        return function

    return register


def job_maker(operator: Operator) -> JobMaker | None:
    """The registered function that makes jobs for calls of an operator; None if there is none."""
    load_module(f"{operator.reference.__module__}.cpu")
    return _job_makers.get(operator.name)


class Formula(NamedTuple):
    """The assignments that a job computes, and the operands that they read and write."""

    assignments: Assignments
    operands: tuple[Any, ...]


class Job:
    """A compiled kernel with its arguments: array addresses, floats, and integers (sizes, strides).

    `steps` is the size of the outermost loop, `work` the approximate number of elements; 0 if steps
    may write to the same memory, so that threads must not divide them.
    """

    __slots__ = ("alive", "formula", "kernel", "steps", "words", "work")

    def __init__(
        self, kernel: Kernel, words: np.ndarray, alive: list[Any], steps: int, work: int
    ) -> None:
        """`words` are the 8-byte arguments of `kernel`, `alive` what they are addresses of."""
        self.kernel, self.words, self.alive = kernel, words, alive
        self.steps, self.work = steps, work
        self.formula: Formula | None = None
        """The elementwise formula that the job computes; None if it does anything else."""
