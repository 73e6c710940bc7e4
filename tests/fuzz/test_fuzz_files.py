"""Damaged files of every kind, given to the programs that read them: no crash, no half output."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from support.damage import damaged
from support.fuzz_corpus import in_corpus, run
from support.fuzz_programs import must_end_well
from support.fuzz_targets import TARGETS


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with in_corpus(tmp_path_factory.mktemp("corpus")) as folder:
        return folder


def check(name: str, seed: int, rounds: int) -> None:
    """Each program that reads the file copes with damaged copies of it."""
    data = Path(name).read_bytes()
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    for _ in range(rounds):
        Path("BAD").write_bytes(damaged(data, rng))
        command = TARGETS[name][int(rng.integers(len(TARGETS[name])))]
        must_end_well(command)
    assert not list(Path().glob(".*.tmp"))


@pytest.mark.parametrize("name", TARGETS)
def test_undamaged_files_are_read(corpus: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)
    Path("BAD").write_bytes(Path(name).read_bytes())
    outcome = run(*TARGETS[name][0])
    assert outcome.crash is None
    assert outcome.status == 0, outcome.log


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files(corpus: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)
    check(name, seed=1, rounds=6)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_damaged_files(corpus: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)
    check(name, seed=2, rounds=300)
