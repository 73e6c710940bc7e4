"""Runs pipelines of our programs inside this process, one program after another.

A pipe between two of our programs, or named by an argument (`ark:nnet3-copy-egs ... |`), is
replaced: the programs run in turn and pass their output in memory (io/handover.py). Pipes to be
read run before the program that reads them, pipes to be written run after it. The shell runs other
programs, and pipelines over files too large to hold.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator

from nnet3tools import draws
from nnet3tools.cli.programs import PROGRAMS, main_of
from nnet3tools.errors import OptionError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io import handover
from nnet3tools.io.files import split_offset
from nnet3tools.io.handover import Handed
from nnet3tools.io.specifiers import parse_rspecifier
from nnet3tools.io.table_reader import split_range
from nnet3tools.recipe.jobs import Pipeline

LARGEST_HELD = 100 << 20
"""The largest total size in bytes of the files that a pipe run in memory reads."""
_MOST_KEPT = 8
"""The number of pipe results kept because they were needed twice."""


def parse_pipeline(text: str) -> Pipeline | None:
    """Split a command line at |; None if it needs a shell or has programs of other packages."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    programs: list[tuple[str, ...]] = []
    words: list[str] = []
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    if any(char in text for char in "$`\\*?[~#") and not _quoted_all(text):
        return None
    for token in [*tokens, "|"]:
        if token == "|":
            programs.append(tuple(words))
            words = []
        elif token and set(token) <= set("|&;<>()"):
            return None
        else:
            words.append(token)
    return tuple(programs) if all(p and p[0] in PROGRAMS for p in programs) else None


def _quoted_all(text: str) -> bool:
    """Whether every character of `text` that a shell would expand is in single quotes."""
    outside = "".join(text.split("'")[::2])
    return text.count("'") % 2 == 0 and not any(char in outside for char in "$`\\*?[~#")


@dataclass
class Shell:
    """Runs pipelines in this process; caches the output of pipes that are read repeatedly.

    `seen` has the text of pipes that have run. `kept` has, for pipes that have run twice, the state
    of their input files, their output, and the bytes that they logged.
    """

    seen: set[str] = field(default_factory=set)
    kept: OrderedDict[str, tuple[tuple, Handed, bytes]] = field(default_factory=OrderedDict)

    def run(self, pipeline: Pipeline, handed: Handed | None = None) -> int:
        """Run a pipeline; `handed` is its first program's standard input. Returns the status."""
        is_ours = all(program[0] in PROGRAMS for program in pipeline)
        if not is_ours or (len(pipeline) > 1 and handed is None and not _fits(pipeline)):
            return _run_by_bash(pipeline)
        for i, program in enumerate(pipeline):
            status, handed = self._run_program(program, handed, is_last=i == len(pipeline) - 1)
            if status:
                return status
        return 0

    def _run_program(
        self, program: tuple[str, ...], given: Handed | None, is_last: bool
    ) -> tuple[int, Handed | None]:
        """Run a program and the pipes in its arguments; returns exit status and standard output.

        `given` is the standard input. The output is None for the last program of a pipeline.
        """
        offers: dict[str, Handed] = {}
        for word in program[1:]:
            if (name := _pipe_read(word)) and (pipe := parse_pipeline(name[:-1])):
                if not _fits(pipe):
                    continue
                status, handed = self._result(name, pipe)
                if status:
                    return status, None
                offers[name] = handed
        after = {w: p for w in program[1:] if w.startswith("|") and (p := parse_pipeline(w[1:]))}
        if given is not None:
            offers["-"] = given
        sinks = [*after, *([] if is_last else ["-"])]
        status, found = _call(program, offers, sinks)
        if status:
            return status, None
        for word, pipe in after.items():
            if status := self.run(pipe, found[word]):
                return status, None
        return 0, found.get("-")

    def _result(self, name: str, pipe: Pipeline) -> tuple[int, Handed]:
        """Run the pipe with text `name`; returns status and output, cached from the second run."""
        files = _files(pipe)
        if name in self.kept and self.kept[name][0] == files:
            self.kept.move_to_end(name)
            _, kept, said = self.kept[name]
            os.write(2, said)
            return 0, kept
        began = _end_of_log()
        handed: Handed | None = None
        for program in pipe:
            status, handed = self._run_program(program, handed, is_last=False)
            if status:
                return status, Handed()
        assert handed is not None
        if name in self.seen:
            self.kept[name] = files, handed, _log_since(began)
            while len(self.kept) > _MOST_KEPT:
                self.kept.popitem(last=False)
        self.seen.add(name)
        return 0, handed


def _call(
    program: tuple[str, ...], offers: dict[str, Handed], sinks: list[str]
) -> tuple[int, dict[str, Handed]]:
    """Run a program in this process; returns the exit status and the outputs by name.

    `offers` has the data of its inputs by name, `sinks` the names of its outputs.
    """
    main = main_of(program[0])
    draws.seed(1)  # the seed of a new process
    handover.clear()
    try:
        for name, handed in offers.items():
            handover.offer(name, handed)
        for name in sinks:
            handover.collect(name)
        status = main(list(program[1:]))
        return status, {name: handover.collected(name) for name in sinks}
    finally:
        handover.clear()
        sys.stdout.flush()


def _run_by_bash(pipeline: Pipeline) -> int:
    text = " | ".join(shlex.join(program) for program in pipeline)
    words = ["bash", "-o", "pipefail", "-c", text]
    return subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode


def _pipe_read(word: str) -> str:
    """The pipe "command |" that an argument such as "ark:command |" names; "" for none."""
    if not word.endswith("|"):
        return ""
    try:
        return parse_rspecifier(word).rxfilename
    except OptionError:
        return "" if word.startswith("-") else word


def _paths(pipe: Pipeline) -> Iterator[tuple[str, bool]]:
    """Yield (path, whether it is a script file) for the files that the programs of a pipe name."""
    for word in (word for program in pipe for word in program[1:]):
        if name := _pipe_read(word):
            inner = parse_pipeline(name[:-1]) or ((("", *shlex.split(name[:-1])),))
            yield from _paths(inner)
            continue
        kind, _, path = word.partition(":")
        is_table = kind.split(",")[0] in ("ark", "scp")
        path = path if is_table else word
        if os.path.isfile(path):
            yield path, kind.startswith("scp")


def _files(pipe: Pipeline) -> tuple:
    """(path, time of change, size, inode) of each of a pipe's files, to detect changed files."""
    found = []
    for path, _ in _paths(pipe):
        status = os.stat(path)
        found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _fits(pipe: Pipeline) -> bool:
    """Whether the files that a pipe reads are small enough to keep in memory."""
    sizes = (
        _size_of_script(p) if is_script else os.path.getsize(p) for p, is_script in _paths(pipe)
    )
    return sum(sizes) <= LARGEST_HELD


def _size_of_script(path: str) -> float:
    """The total bytes of the files that a script file (scp) lists; infinity if it lists pipes."""
    with open(path, errors="surrogateescape") as file:
        names = {words[1].strip() for line in file if len(words := line.split(None, 1)) == 2}
    if any(name.endswith("|") for name in names):
        return float("inf")
    archives = {split_offset(split_range(name)[0])[0] for name in names}
    return sum(os.path.getsize(name) for name in archives if os.path.isfile(name))


def _end_of_log() -> int:
    try:
        return os.fstat(2).st_size
    except OSError:
        return 0


def _log_since(offset: int) -> bytes:
    """The bytes written to standard error after `offset`; b"" if standard error is no file."""
    size = max(0, _end_of_log() - offset)
    try:
        return os.pread(2, size, offset) if size else b""
    except OSError:
        return b""
