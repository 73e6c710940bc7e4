"""Which files and programs a case may open and start, and what was opened and started instead.

A Python audit hook sees what Python code does, at once. Calls of C code and of child processes are
seen only if support/watched_calls.c is preloaded, which records them in the file $WATCHED_CALLS.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_CACHE = os.environ.get("NNET3TOOLS_CACHE") or os.path.expanduser("~/.cache/nnet3tools")
_MODULES = (ROOT / "src", ROOT / "tests", sys.prefix, sys.base_prefix)
_SYSTEM = tuple(f"{f}/" for f in (*_MODULES, f"{_CACHE}/kernels", "/proc", "/sys/devices"))
"""Folders of modules, compiled kernels and facts about the system, which any case may read."""
_STARTS = ("os.system", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty")
_CHANGES = {"os.rename": slice(0, 2), "os.link": slice(1, 2), "os.symlink": slice(1, 2)}
for _name in ("remove", "rmdir", "mkdir", "truncate", "chmod", "chown", "utime"):
    _CHANGES[f"os.{_name}"] = slice(1)
"""Audit events that change files -> which of their arguments are changed paths."""
_NAMES = re.compile(r"[^,:=<>|\s]+")


class Forbidden(BaseException):
    """A file was opened, or a program started, that the case does not name."""


@dataclass(frozen=True)
class Case:
    """What a run may do: `names` are its files and folders, `commands` the programs it starts.

    `text` are the contents of a file that may name other files; "" if it may not.
    """

    names: Collection[str]
    text: str = ""
    commands: Collection[str] = ()
    broken: list[str] = field(default_factory=list)
    """What the run did otherwise: r, w, x (program) or c (connection), and a path."""

    @classmethod
    def of_words(cls, words: Collection[str], data: bytes = b"") -> "Case":
        """The case of a command line; `data` are the contents of a file that may name files."""
        names = {name.rstrip("/") for word in words for name in _NAMES.findall(word)}
        return cls(names, data.decode("utf-8", "surrogateescape"))

    def allows(self, kind: str, path: str) -> bool:
        """Whether a file may be read or written, or a program started."""
        if kind in "xc":
            return path in self.commands
        inside = os.path.relpath(path) if path else "?"
        if inside in self.names or any(inside.startswith(f"{name}/") for name in self.names):
            return ".." not in inside
        if kind == "r" and (path.startswith(_SYSTEM) or (path and path in self.text)):
            return True
        is_temporary = os.path.basename(path).startswith(".nnet3tools-") and inside[:2] != ".."
        return is_temporary or inside == "." or path == os.devnull or "/__pycache__/" in path

    def _check(self, kind: str, path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike):  # else it is a descriptor or None
            if not self.allows(kind, os.fsdecode(path)):
                self.broken.append(f"{kind} {os.fsdecode(path)}")
                raise Forbidden(self.broken[-1])

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Judge an audit event; Forbidden, and an entry in `broken`, for what is not allowed."""
        if event == "open":
            writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            self._check("w" if writes else "r", args[0])
        elif event == "subprocess.Popen":
            self._check("x", " ".join(map(os.fsdecode, args[1])))
        elif event in _STARTS:
            self._check("x", args[0] if args else event)
        elif event.startswith("socket."):
            self._check("c", event)
        elif event == "ctypes.dlopen":
            self._check("r", args[0])
        for path in args[_CHANGES[event]] if event in _CHANGES else ():
            self._check("w", path)


_cases: list[Case] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _cases:
        _cases[-1].audit(event, args)


@contextlib.contextmanager
def watching(case: Case) -> Iterator[None]:
    """Scope in which calls that the case does not allow raise Forbidden."""
    if not getattr(sys, "_nnet3tools_audited", False):
        sys.addaudithook(_audit)
        sys._nnet3tools_audited = True  # type: ignore[attr-defined]
    if log := os.environ.get("WATCHED_CALLS"):
        os.truncate(log, 0)
    _cases.append(case)
    try:
        yield
    finally:
        _cases.pop()
        for call in Path(log).read_text("latin-1").splitlines() if log else ():
            if call[:1] and call[2:] != log and not case.allows(call[0], call[2:]):
                case.broken.append(call)


def preloaded(folder: Path, compiler: str) -> dict[str, str]:
    """Environment of processes whose calls of C code are recorded, too."""
    library, log = folder / "watched_calls.so", folder / "calls"
    source = Path(__file__).with_name("watched_calls.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    log.touch()
    return {**os.environ, "LD_PRELOAD": str(library), "WATCHED_CALLS": str(log)}
