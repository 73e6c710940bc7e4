"""The library of failing system calls (failing_calls.c): building it, and what it has done."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ERRORS = {"i": "Input/output error", "n": "No space left on device", "e": "Stale file handle"}
"""What the system calls say, by the letter of the kind."""


@functools.cache
def library() -> Path | None:
    """The compiled library; None without a compiler for it."""
    if (compiler := shutil.which("cc") or shutil.which("gcc")) is None:
        return None
    target = Path(tempfile.mkdtemp(prefix="failing-calls-")) / "failing_calls.so"
    source = Path(__file__).with_suffix(".c")
    words = [compiler, "-O1", "-shared", "-fPIC", "-o", target, source, "-ldl"]
    made = subprocess.run(words, capture_output=True, check=False)
    return target if made.returncode == 0 else None


@dataclass(frozen=True)
class Call:
    """A system call in the library's list; `kind` is the letter of its failure, "-" if none."""

    process: int
    number: int
    kind: str
    name: str
    path: str


@dataclass(frozen=True)
class FailingCalls:
    """Environments in which calls on files below `folder` fail, listed below the folder `state`."""

    folder: Path
    state: Path

    def environment(self, seed: int = 0, one_in: int = 0, **more: object) -> dict[str, str]:
        """The environment in which one call of `one_in` fails; `more`: KINDS, CLOCK, as in C."""
        self.state.mkdir(exist_ok=True)
        (self.state / "processes").unlink(missing_ok=True)
        values = {"FOLDER": self.folder.resolve(), "STATE": self.state, "SEED": seed}
        values |= {"ONE_IN": one_in, **more}
        ours = {f"FAILING_{name}": str(value) for name, value in values.items()}
        return {**os.environ, "LD_PRELOAD": str(library()), **ours}

    def taken(self) -> list[Call]:
        """The listed calls since the last call of this method."""
        listed = self.state / "failures"
        if not listed.exists():
            return []
        rows = [line.split(maxsplit=4) for line in listed.read_text().splitlines()]
        listed.unlink()
        return [Call(int(r[0]), int(r[1]), *r[2:]) for r in rows if r[2] != "end"]


def counted(calls: list[Call]) -> Counter[str]:
    """The number of failures by kind and call."""
    names = {**ERRORS, "s": "short", "d": "delay", "r": "interrupted"}
    return Counter(f"{call.name}: {names[call.kind]}" for call in calls if call.kind in names)
