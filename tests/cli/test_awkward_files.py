"""Every program with input and output files of names that a shell would take for more."""

import os
from pathlib import Path

import pytest

from nnet3tools.cli.programs import PROGRAMS
from support.awkward_names import AWKWARD, REFUSED
from support.fuzz_corpus import in_corpus, run
from support.fuzz_targets import TARGETS
from support.plain_sound import with_sound_features

ROWS = {
    command[0]: (file, command)
    for file, commands in reversed(TARGETS.items())
    for command in commands
    if any(word.endswith("BAD") for word in command)
}
OTHERS = {
    **{name: ("--dir=BAD", "--feat-dir=BAD") for name in PROGRAMS if "-train-" in name},
    **{name: ("scp:BAD", "ark:out") for name in ("compute-fbank-feats", "compute-mfcc-feats")},
    "nnet3-report": ("BAD",),
    "nnet3-check-data": ("BAD",),
    "nnet3-recognizer-info": ("BAD",),
    "nnet3-serve": ("BAD",),
    "nnet3-train-recognizer": ("BAD", "out"),
    "nnet3-prepare-lang": ("BAD", "<UNK>", "out"),
}
"""Programs without samples: what they are given does not exist."""
MAY_BE_REFUSED = {*REFUSED, "x:1"}  # an offset into a file


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with in_corpus(tmp_path_factory.mktemp("corpus")) as folder:
        return folder


def with_name(word: str, name: str) -> str:
    """A word of a command line with `name` in place of BAD, or in the names of outputs."""
    before, colon, path = word.rpartition(":")
    outputs = [f"{name}.{each}" for each in path.split(",") if each in ("out", "out2")]
    return before + colon + ",".join(outputs) if outputs else word.replace("BAD", name)


def check(program: str, name: str) -> None:
    """Run a program with a name for a file that it reads, and for all that it writes."""
    before = set(os.listdir())
    if program in ROWS:
        file, words = ROWS[program]
        Path(name).write_bytes(Path(file).read_bytes())
    else:
        words = (program, *OTHERS[program])
    try:
        outcome = run(*(with_name(word, name) for word in words))
    finally:
        made = set(os.listdir()) - before
        for each in filter(os.path.isfile, made):
            os.unlink(each)
    assert outcome.crash is None
    assert not {each for each in made if "OWNED" in each and name not in each}
    if program in ROWS and name not in MAY_BE_REFUSED:
        assert outcome.status == 0, outcome.log
    elif outcome.status != 0:
        assert len(outcome.errors) == 1 or "Usage" in outcome.log, outcome.log


@pytest.fixture
def here(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_sound_features(monkeypatch)
    monkeypatch.chdir(corpus)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("program", [*ROWS, *OTHERS])
def test_two_awkward_names(program: str) -> None:
    """Over all programs these are all names four times."""
    first = 2 * PROGRAMS.index(program)
    for i in (first, first + 1):
        check(program, AWKWARD[i % len(AWKWARD)])


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("program", [*ROWS, *OTHERS])
def test_all_awkward_names(program: str) -> None:
    for name in AWKWARD:
        check(program, name)


def test_every_program_that_names_files_has_a_row() -> None:
    assert set(PROGRAMS) - set(ROWS) - set(OTHERS) == {"cuda-compiled", "nnet3-worker"}
