"""Parts of a plan: stages, their steps, and small actions, which the driver may repeat.

All are values. The modules that make a plan read options and files, and run nothing. `driver.py`
runs the plan, and knows nothing of networks.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.io.whole_file import whole_file
from nnet3tools.recipe.jobs import Job


@dataclass(frozen=True)
class WriteText:
    """Writes a file with this text."""

    path: Path
    text: str

    def do(self) -> None:
        """Write the file, and make its folder."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(str(self.path)) as file:
            file.write(self.text.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class Link:
    """Makes `path` a symbolic link to `target`, and replaces an existing file."""

    path: Path
    target: str

    def do(self) -> None:
        """Make the link under another name, then rename it."""
        beside = self.path.with_name(f".{self.path.name}.new")
        beside.unlink(missing_ok=True)
        beside.symlink_to(self.target)
        os.replace(beside, self.path)


@dataclass(frozen=True)
class CopyFile:
    """Copies a file."""

    source: Path
    target: Path

    def do(self) -> None:
        """Copy the file."""
        Concatenate(self.target, (self.source,)).do()


@dataclass(frozen=True)
class Concatenate:
    """Writes the contents of several files to one file."""

    target: Path
    sources: tuple[Path, ...]
    empty: str = ""
    """The error message if the result is empty; "" if it may be empty."""

    def do(self) -> None:
        """Write the file; DataError if it is empty and must not be."""
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
    """Removes files; their names may contain * and ? as in a shell."""

    patterns: tuple[str, ...]

    def do(self) -> None:
        """Remove the files that exist."""
        for pattern in self.patterns:
            folder, name = os.path.split(pattern)
            for path in glob.glob(os.path.join(glob.escape(folder), name)):
                os.unlink(path)


@dataclass(frozen=True)
class Jobs:
    """Jobs that may run in parallel; together they make the files `outputs`."""

    jobs: tuple[Job, ...]
    outputs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Later:
    """Steps that are determined when their turn comes, because they depend on logs or models."""

    steps: Callable[[], list[Step]]


Step = Jobs | Later | WriteText | Link | CopyFile | Concatenate | Remove


@dataclass(frozen=True)
class Stage:
    """A part of the plan that is done as a whole.

    `number` is Kaldi's (--stage). `background` jobs run beside the steps, and the stage ends when
    both have ended. A stage is done if `outputs` exist, no file matches a pattern in `absent`, and
    the logs in `proof` say so. It needs `inputs`. `iteration` is the number of the training
    iteration, or None.
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
