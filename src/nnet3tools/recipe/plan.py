"""What a plan is made of: stages, their steps, and the small things a driver does itself.

All are values: who makes a plan looks at options and files, and runs nothing; the executor
(`driver.py`) runs it and knows nothing of networks.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nnet3tools.errors import DataError
from nnet3tools.io.whole_file import whole_file
from nnet3tools.recipe.jobs import Job

__all__ = [
    "Action",
    "Concatenate",
    "CopyFile",
    "Jobs",
    "Later",
    "Link",
    "Remove",
    "Stage",
    "Step",
    "WriteText",
]


class Action(Protocol):
    """Something small, done by the driver itself; doing it twice changes nothing."""

    def do(self) -> None:
        """Do it; DataError if that fails."""


@dataclass(frozen=True)
class WriteText:
    """A file with this text."""

    path: Path
    text: str

    def do(self) -> None:
        """Write it, unless it is there already."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(str(self.path)) as file:
            file.write(self.text.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class Link:
    """A symbolic link at `path` to `target`, whatever was there before."""

    path: Path
    target: str

    def do(self) -> None:
        """Make it beside the place, then move it there."""
        beside = self.path.with_name(f".{self.path.name}.new")
        beside.unlink(missing_ok=True)
        beside.symlink_to(self.target)
        os.replace(beside, self.path)


@dataclass(frozen=True)
class CopyFile:
    """A copy of a file."""

    source: Path
    target: Path

    def do(self) -> None:
        """Copy it."""
        Concatenate(self.target, (self.source,)).do()


@dataclass(frozen=True)
class Concatenate:
    """A file of all of some others."""

    target: Path
    sources: tuple[Path, ...]
    empty: str = ""
    """What to say if there is nothing in them; "" if there may be nothing."""

    def do(self) -> None:
        """Write it; DataError if it is empty and may not be."""
        with whole_file(str(self.target)) as out:
            for source in self.sources:
                try:
                    with open(source, "rb") as file:
                        shutil.copyfileobj(file, out, 1 << 20)
                except OSError as error:
                    raise DataError(f"cannot read '{source}': {error.strerror}") from None
            if self.empty and out.tell() == 0:
                raise DataError(f"{self.target}: {self.empty}")


@dataclass(frozen=True)
class Remove:
    """Files that go: in their names * and ? stand for what they do in a shell."""

    patterns: tuple[str, ...]

    def do(self) -> None:
        """Remove what is there."""
        for pattern in self.patterns:
            folder, name = os.path.split(pattern)
            for path in glob.glob(os.path.join(glob.escape(folder), name)):
                os.unlink(path)


@dataclass(frozen=True)
class Jobs:
    """Jobs that may run at once, of which the files `outputs` come."""

    jobs: tuple[Job, ...]
    outputs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Later:
    """Steps that can be told only when it is their turn: they depend on what logs or models say."""

    steps: Callable[[], list[Step]]


Step = Jobs | Later | WriteText | Link | CopyFile | Concatenate | Remove


@dataclass(frozen=True)
class Stage:
    """A part of the work that is done as a whole.

    `number` is Kaldi's (--stage). `background` runs beside the steps, and the stage ends when both
    have. It is done when `outputs` are there, none of the patterns `absent` is, and the logs of
    `proof` say so. It needs `inputs`. `iteration` is that of training, if it is one.
    """

    number: int
    name: str
    steps: tuple[Step, ...]
    outputs: tuple[Path, ...] = ()
    inputs: tuple[Path, ...] = ()
    background: tuple[Job, ...] = ()
    proof: tuple[Job, ...] = ()
    absent: tuple[str, ...] = ()
    iteration: int | None = None
