"""Damaged files of every kind, given to the programs that read them: no crash, no half output."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.cli.programs import PROGRAMS
from support.damage import damaged
from support.fuzz_corpus import in_corpus, run
from support.fuzz_programs import must_end_well
from support.fuzz_targets import TARGETS
from support.plain_sound import with_sound_features


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with in_corpus(tmp_path_factory.mktemp("corpus")) as folder:
        return folder


NO_ROW = {
    "it reads no file": {"cuda-compiled"},
    "it needs the extra [recipe] and reads what wav-copy reads": {
        "compute-fbank-feats",
        "compute-mfcc-feats",
    },
    "it reads folders of logs or trains (tests/recipe)": {
        *("nnet3-report", "nnet3-train-chain", "nnet3-train-chain-e2e", "nnet3-train-dnn"),
        *("nnet3-train-raw-dnn", "nnet3-train-raw-rnn", "nnet3-train-rnn"),
    },
}


def test_every_program_that_reads_files_has_a_row() -> None:
    rows = {command[0] for commands in TARGETS.values() for command in commands}
    assert set(PROGRAMS) - rows == set().union(*NO_ROW.values())


def check(name: str, seed: int, rounds: int) -> None:
    """Each program that reads the file copes with damaged copies of it."""
    data = Path(name).read_bytes()
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    commands = TARGETS[name]
    for turn in range(max(rounds, len(commands))):
        Path("BAD").write_bytes(damaged(data, rng))
        must_end_well(commands[turn % len(commands)])
    assert not list(Path().glob(".*.tmp"))


@pytest.mark.parametrize("name", TARGETS)
def test_undamaged_files_are_read(corpus: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_sound_features(monkeypatch)
    monkeypatch.chdir(corpus)
    Path("BAD").write_bytes(Path(name).read_bytes())
    for command in TARGETS[name]:
        outcome = run(*command)
        assert outcome.crash is None
        assert outcome.status == 0, outcome.log


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files(corpus: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_sound_features(monkeypatch)
    monkeypatch.chdir(corpus)
    check(name, seed=1, rounds=6)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_damaged_files(corpus: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_sound_features(monkeypatch)
    monkeypatch.chdir(corpus)
    check(name, seed=2, rounds=300)
