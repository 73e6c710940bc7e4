"""Parts of a plan: stages, their steps, and small actions, which the driver may repeat.

All are values. The modules that make a plan read options and files, and run nothing. `driver.py`
runs the plan, and knows nothing of networks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.checked import NamedFile, matches
from nnet3tools.io.files import write_text
from nnet3tools.io.whole_file import whole_file
from nnet3tools.recipe.jobs import Job


@dataclass(frozen=True)
class WriteText:
    """A step that writes `text` to the file `path`, whose folder is made if needed."""

    path: Path
    text: str

    def do(self) -> None:
        """Write the file; make its folder if needed."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, self.text)


def lines_at(path: Path, lines: Iterable[object]) -> WriteText:
    """The step that writes lines to the file `path`."""
    return WriteText(path, "".join(f"{line}\n" for line in lines))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file of lines; the file appears whole or not at all."""
    lines_at(path, lines).do()


@dataclass(frozen=True)
class Link:
    """A step that makes `path` a symbolic link to `target`; replaces an existing file."""

    path: Path
    target: str

    def do(self) -> None:
        """Make the link under another name and rename it, so that `path` exists at any time."""
        beside = self.path.with_name(f".{self.path.name}.new")
        beside.unlink(missing_ok=True)
        beside.symlink_to(self.target)
        os.replace(beside, self.path)


@dataclass(frozen=True)
class Concatenate:
    """A step that writes the contents of several files to one file.

    `empty` is the error message if the result is empty; "" allows an empty result.
    """

    target: Path
    sources: tuple[Path, ...]
    empty: str = ""

    def do(self) -> None:
        """Write the joined file; DataError with the message `empty` if it must not be empty."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(str(self.target)) as out:
            for source in self.sources:
                with NamedFile(str(source)) as file:
                    shutil.copyfileobj(file, out, 1 << 20)
            if self.empty and out.tell() == 0:
                raise DataError(f"{self.target}: {self.empty}")


def copy_file(source: Path, target: Path) -> Concatenate:
    """The step that copies the file `source` to `target`."""
    return Concatenate(target, (source,))


@dataclass(frozen=True)
class Remove:
    """A step that removes files; their names may contain * and ? as in a shell."""

    patterns: tuple[str, ...]

    def do(self) -> None:
        """Remove the files that exist."""
        for path in (path for pattern in self.patterns for path in matches(pattern)):
            os.unlink(path)


@dataclass(frozen=True)
class Jobs:
    """A step that runs jobs, possibly in parallel, which make the files `outputs`."""

    jobs: tuple[Job, ...]
    outputs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Later:
    """A step whose list of steps is made when it runs, because it depends on logs or models."""

    steps: Callable[[], list[Step]]


Step = Jobs | Later | WriteText | Link | Concatenate | Remove


@dataclass(frozen=True)
class Stage:
    """A part of the training plan that is done as a whole or repeated as a whole.

    `number` is Kaldi's (--stage). `background` jobs run beside the steps, and the stage ends when
    both have ended. A stage is done if `outputs` exist, no file matches a pattern in `absent`, and
    all jobs in `background` and `proof` have logs that end with success. It needs the files
    `inputs`. `iteration` is the number of the training iteration, or None.
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
