"""Programs whose system calls fail one by one: `python -m support.failing_trials` in a corpus.

Every call on a file below the working directory fails once, in a forked process of its own. This
process runs under the library of failing calls (failing_calls.py), with its environment.
"""

import contextlib
import ctypes
import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.failing_calls import ERRORS, Call, FailingCalls

STDOUT = "standard-output"
_KINDS = {"read": "is", "write": "ns", "close": "n", "stat": "e", "link": "n", "rename": "n"}
"""The kinds of failures that a call meets; "i" for others."""
_SECONDS = 60
_TEMPORARY = re.compile(r"\.nnet3tools-.*\.tmp|.*\.new")


@dataclass
class Trial:
    """A run of a program: its exit status, log, and the files that it made or changed."""

    status: int
    log: str
    files: dict[str, bytes] = field(default_factory=dict)


class Trials:
    """Runs of programs in the working directory, whose files at the beginning are the inputs."""

    def __init__(self, state: Path) -> None:
        self.calls = FailingCalls(Path.cwd(), state)
        self._shim = ctypes.CDLL(None)
        self._shim.fail_at.argtypes = [ctypes.c_uint64, ctypes.c_char]
        self._inputs = dict(_present())

    def run(self, words: Sequence[str], number: int, kind: str) -> Trial:
        """Run a program of which call `number` fails as `kind`; 0: none fails, all are listed."""
        for name in dict(_present()).keys() - self._inputs.keys():
            os.unlink(name)
        log = self.calls.state / "log"
        child = os.fork()
        if child == 0:
            os._exit(self._call(words, log, number, kind))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        now = dict(_present())
        changed = [name for name, stamp in now.items() if self._inputs.get(name) != stamp]
        files = {name: Path(name).read_bytes() for name in changed}
        return Trial(status, log.read_text(), files)

    def _call(self, words: Sequence[str], log: Path, number: int, kind: str) -> int:
        from nnet3tools.cli.programs import main_of

        signal.alarm(_SECONDS)
        source = words[-1][1:] if words[-1].startswith("<") else os.devnull
        words = [*words[:-1], "-"] if words[-1].startswith("<") else words
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        opened = os.open(source, os.O_RDONLY), os.open(STDOUT, flags), os.open(log, flags)
        for to, descriptor in enumerate(opened):
            os.dup2(descriptor, to)
            os.close(descriptor)
        main = main_of(words[0])
        self._shim.fail_at(number, kind.encode())
        try:
            status = int(main(list(words[1:])))
            if number == 0:
                (self.calls.state / "modules").write_text("\n".join(sys.modules))
            return status
        except BaseException:
            import traceback

            traceback.print_exc()
            return 99

    def faults(self, words: Sequence[str], most: int) -> Iterator[tuple[str, str]]:
        """Yield (fault, details) for at most `most` calls of a program, each of which fails."""
        self.run(words, 0, "-")  # writes caches
        for name in (self.calls.state / "modules").read_text().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        self.calls.taken()
        whole = self.run(words, 0, "-")
        if whole.status != 0:
            yield "not undisturbed", whole.log
            return
        again = self.run(words, 0, "-")
        listed = self.calls.taken()
        listed = listed[: len(listed) // 2]
        entries = [call for call in listed if call.name == "readdir"]
        listed = [call for call in listed if call.name != "readdir" or call in entries[::100]]
        if again.files != whole.files:
            yield "not the same twice", ""
            return
        step = max(1, len(listed) / most)
        for at in range(min(most, len(listed))):
            call = listed[int(at * step)]
            for kind in _KINDS.get(call.name, "i"):
                trial = self.run(words, call.number, kind)
                self.num_trials = getattr(self, "num_trials", 0) + 1
                for failed in self.calls.taken():
                    for fault in judge(whole, trial, failed):
                        yield fault, f"{failed}: {trial.log[-1500:]}"


def _present(folder: str = "") -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Yield name, and size, time and number, of each file below the working directory."""
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _present(f"{folder}{entry.name}/")
            else:
                found = entry.stat(follow_symlinks=False)
                yield folder + entry.name, (found.st_size, found.st_mtime_ns, found.st_ino)


def judge(whole: Trial, trial: Trial, call: Call) -> Iterator[str]:
    """Yield what is wrong with a trial of which one call failed, beside the undisturbed run."""
    kind = call.kind
    lines = [line for line in trial.log.splitlines() if line.startswith("ERROR (")]
    if "Traceback" in trial.log:
        yield "traceback"
    if trial.status < 0 or trial.status == 99:
        yield f"status {trial.status}"
    outputs = {name: data for name, data in trial.files.items() if name != STDOUT}
    for name, data in outputs.items():
        if _TEMPORARY.fullmatch(os.path.basename(name)):
            if call.name != "unlink":
                yield "temporary file left"
        elif data != whole.files.get(name):
            yield "half-written file"
    if trial.status == 0:
        if kind not in "sd" and lines:
            yield "error line with status 0"
        if whole.files.keys() - trial.files.keys():
            yield "output lost with status 0"
        if trial.files.get(STDOUT) != whole.files.get(STDOUT):
            yield "standard output lost with status 0"
        return
    if kind in "sd":
        yield "a short transfer breaks it"
        return
    if len(lines) != 1:
        yield f"{len(lines)} error lines"
    elif ERRORS[kind] not in lines[0]:
        yield "the error is not named"
    elif "'" not in lines[0] and "/" not in lines[0] and ":" not in lines[0][20:]:
        yield "no file is named"


def main() -> None:
    """Try the command lines on standard input (JSON); print the faults, by command, as JSON."""
    import pytest

    from support.plain_sound import with_sound_features

    del os.environ["LD_PRELOAD"]
    most = int(sys.argv[1])
    trials = Trials(Path(os.environ["FAILING_STATE"]))
    with pytest.MonkeyPatch.context() as patch:
        with_sound_features(patch)
        for words in json.load(sys.stdin):
            print(words[0], file=sys.stderr, flush=True)
            for fault, details in trials.faults(words, most):
                print(json.dumps([words, fault, details]), flush=True)
    print(json.dumps(["", "trials", getattr(trials, "num_trials", 0)]))


if __name__ == "__main__":
    main()
