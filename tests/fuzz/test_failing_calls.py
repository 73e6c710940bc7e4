"""Programs of which one system call fails: no short output with status 0, nothing half-written.

Every call on a file of the folder fails once, in a process of its own (failing_trials.py).
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.failing_calls import FailingCalls, library
from support.fuzz_corpus import in_corpus
from support.fuzz_targets import TARGETS
from support.programs import run

TESTS = Path(__file__).parents[1]
ALLOWED = {
    "chain-objf: the error is not named",  # os.makedirs: "File exists"
    "nnet3-xconfig-to-configs: the error is not named",  # os.makedirs
    "nnet3-check-data: the error is not named",  # libsndfile: "System error", of a file it names
}
FAST = (
    ("nnet3-copy", "--binary=false", "final.raw", "out"),
    ("copy-feats", "ark:feats.ark", "ark,scp:out,out2"),
    ("nnet3-copy-egs", "ark:egs", "ark:-"),
    ("nnet3-train", "--use-gpu=no", "--write-cache=out2", "final.raw", "ark:merged", "out"),
)

pytestmark = pytest.mark.skipif(library() is None, reason="there is no C compiler")


def every_command() -> list[tuple[str, ...]]:
    """A command line for each program and file that it reads, with undamaged files."""
    found = {
        tuple(word.replace("BAD", name) for word in command)
        for name, commands in TARGETS.items()
        for command in commands
        if "Component" not in name and "BAD" in str(command) and "bad-" not in str(command)
    }
    return sorted({*found, ("nnet3-prepare-lang", "dict", "<UNK>", "made-lang")})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("failing") / "corpus"
    folder.mkdir()
    with in_corpus(folder):
        return folder


def faults(corpus: Path, commands: list[tuple[str, ...]], most: int) -> tuple[list[str], int]:
    """The forbidden ends of programs that `most` calls of each fail in; the number of trials."""
    environment = FailingCalls(corpus, corpus.parent / "state").environment()
    environment |= {"PYTHONPATH": str(TESTS), "PYTHONSAFEPATH": "1"}
    program = [sys.executable, "-m", "support.failing_trials", str(most)]
    done = subprocess.run(
        program,
        cwd=corpus,
        env=environment,
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *rows, (_, _, num_trials) = map(json.loads, done.stdout.splitlines())
    (corpus.parent / "faults.txt").write_text(done.stdout)
    found = [f"{words[0]}: {fault}" for words, fault, _ in rows]
    details = {name: details for name, (_, _, details) in zip(found, rows, strict=True)}
    return [f"{n}\n{text}" for n, text in details.items() if n not in ALLOWED], num_trials


def test_no_call_that_fails_loses_output(corpus: Path) -> None:
    found, num_trials = faults(corpus, list(FAST), 12)
    assert not found, "\n".join(found)
    assert num_trials > 50


@pytest.mark.slow
def test_no_call_of_any_program_that_fails_loses_output(corpus: Path) -> None:
    found, num_trials = faults(corpus, every_command(), 100)
    assert not found, "\n".join(found)
    assert num_trials > 5000


# -- single mechanisms


def test_output_is_whole_without_pythons_buffer(corpus: Path) -> None:
    """PYTHONUNBUFFERED gives a standard output that forgets what a short write leaves."""
    with contextlib.chdir(corpus):
        calls = FailingCalls(corpus, corpus.parent / "state")
        environment = {**calls.environment(one_in=1, KINDS="s"), "PYTHONUNBUFFERED": "1"}
        words = [sys.executable, "-P", "-m", "nnet3tools.cli", "nnet3-copy", "final.raw", "-"]
        with open("direct", "wb") as out:
            assert subprocess.call(words, env=environment, stdout=out) == 0
        assert Path("direct").read_bytes() == Path("final.raw").read_bytes()


def test_a_write_that_fails_when_the_file_is_closed_is_an_error(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(descriptor: int, name: str) -> None:
        raise OSError(122, os.strerror(122))

    with contextlib.chdir(corpus):
        Path("out").unlink(missing_ok=True)
        capfd.readouterr()
        monkeypatch.setattr("nnet3tools.io.whole_file.check_written", fail)
        assert run("nnet3-copy", "final.raw", "out") == 255
        assert "cannot write 'out': Disk quota exceeded" in capfd.readouterr().err
        assert not Path("out").exists()


def test_a_pipe_whose_command_loses_data_is_an_error(
    corpus: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with contextlib.chdir(corpus):
        capfd.readouterr()
        assert run("nnet3-copy", "final.raw", "| gzip -c > /dev/full") == 255
        assert "ended with status 1" in capfd.readouterr().err
