"""2,000 mutated inputs spread over every reader; tests/fuzz/run.py gives them any number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.fuzz_corpus import in_corpus
from support.fuzz_readers import READERS
from support.fuzz_trial import attempt, guarded, mutation

INPUTS, SEED = 2000, 18


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with in_corpus(tmp_path_factory.mktemp("corpus")) as folder:
        return folder


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_or_refuses_what_it_gets(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(corpus)
    reader = READERS[name]
    total = sum(other.share for other in READERS.values())
    with guarded():
        for sample in reader.samples:
            assert attempt(reader, Path(sample).read_bytes()) is None
        for index in range(round(INPUTS * reader.share / total) or 1):
            failure = attempt(reader, mutation(name, index, SEED))
            assert failure is None, f"run.py --seed {SEED} --readers '{name}' --only {index}"


def test_any_number_of_inputs_may_be_tried(tmp_path: Path) -> None:
    words = ("--readers", "tree,topology", "--inputs", "20", "--jobs", "1")
    command = [sys.executable, Path(__file__).with_name("run.py"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| all | 20 | 0 |" in done.stdout
