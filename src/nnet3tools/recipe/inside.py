"""Programs run inside this process, one after the other, as a shell would run them.

A pipe between programs of ours, or one that an argument names (`ark:nnet3-copy-egs ... |`), is no
pipe here: its programs run in turn and hand over what they write (io/handover.py). Pipes to be read
are run before the program that reads them, those to be written after it. What is not ours, or deals
with files too large to hold, is left to the shell.
"""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from nnet3tools import draws
from nnet3tools.cli.programs import PROGRAMS, module_of
from nnet3tools.errors import OptionError
from nnet3tools.io import handover
from nnet3tools.io.files import split_offset
from nnet3tools.io.handover import Handed
from nnet3tools.io.specifiers import parse_rspecifier
from nnet3tools.io.table_reader import split_range
from nnet3tools.recipe.jobs import Pipeline

__all__ = ["Shell", "parse_pipeline"]

LARGEST_HELD = 100 << 20
"""Bytes of files that a pipe may read in all to be run in memory."""
_MOST_KEPT = 8
"""Results of pipes that are kept because they were asked for twice."""


def parse_pipeline(text: str) -> Pipeline | None:
    """The programs of a command line, if all are ours and nothing in it is the shell's to do."""
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
    """Whether what the shell would expand stands in single quotes only."""
    outside = "".join(text.split("'")[::2])
    return text.count("'") % 2 == 0 and not any(char in outside for char in "$`\\*?[~#")


@dataclass
class Shell:
    """Runs pipelines; keeps what pipes gave that are asked for again and again."""

    seen: set[str] = field(default_factory=set)
    kept: OrderedDict[str, tuple[tuple, Handed, bytes]] = field(default_factory=OrderedDict)

    def run(self, pipeline: Pipeline, handed: Handed | None = None) -> int:
        """The exit status of a pipeline whose first program reads `handed` as standard input."""
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
        """Status, and what was written to standard output unless this is the last program."""
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
        """Status and result of a pipe; from the second time on results are kept."""
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
    """Status of a program that finds `offers`, and what it wrote to `sinks`."""
    main = importlib.import_module(module_of(program[0])).main
    draws.seed(1)  # as a new process finds it
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
    """The rxfilename of a pipe that a word of a command line names, or ""."""
    if not word.endswith("|"):
        return ""
    try:
        return parse_rspecifier(word).rxfilename
    except OptionError:
        return "" if word.startswith("-") else word


def _paths(pipe: Pipeline) -> Iterator[tuple[str, bool]]:
    """The files that programs name, also in pipes of theirs; whether each is a script of others."""
    for word in (word for program in pipe for word in program[1:]):
        if name := _pipe_read(word):
            inner = parse_pipeline(name[:-1]) or ((("", *name[:-1].split()),))
            yield from _paths(inner)
            continue
        kind, _, path = word.partition(":")
        is_table = kind.split(",")[0] in ("ark", "scp")
        path = path if is_table else word
        if os.path.isfile(path):
            yield path, kind.startswith("scp")


def _files(pipe: Pipeline) -> tuple:
    """What would show that a pipe's files have changed."""
    found = []
    for path, _ in _paths(pipe):
        status = os.stat(path)
        found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _fits(pipe: Pipeline) -> bool:
    """Whether what a pipe may read in all can be held."""
    sizes = (
        _size_of_script(p) if is_script else os.path.getsize(p) for p, is_script in _paths(pipe)
    )
    return sum(sizes) <= LARGEST_HELD


def _size_of_script(path: str) -> float:
    """Bytes of the files that a script file names; infinite if there are pipes among them."""
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
    """What was written to the log, if standard error is a file."""
    size = max(0, _end_of_log() - offset)
    try:
        return os.pread(2, size, offset) if size else b""
    except OSError:
        return b""
