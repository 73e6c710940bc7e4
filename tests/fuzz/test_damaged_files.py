"""Damaged files of every kind, given to readers and programs: no crash, no half output.

2,000 inputs are spread over all readers, the same ones each time. More, drawn anew:

    NNET3TOOLS_FUZZ_INPUTS=1000000 tests/run.sh --slow -n 2 tests/fuzz/test_damaged_files.py

hypothesis shrinks what fails and tries it again in the next run. With `-n`, a reader that kills its
process is named. A fault that was mended is kept as a file in tests/known_issues.
"""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings

from nnet3tools.cli.programs import PROGRAMS
from support.damage import damaged_files
from support.fuzz_corpus import in_corpus, run
from support.fuzz_readers import READERS
from support.fuzz_targets import TARGETS
from support.fuzz_trial import attempt, guarded
from support.plain_sound import with_sound_features

INPUTS = int(os.environ.get("NNET3TOOLS_FUZZ_INPUTS", "2000"))
SHARES = sum(reader.share for reader in READERS.values())
ISSUES = Path(__file__).parents[1] / "known_issues"
NO_ROW = {
    "it reads no file": {"cuda-compiled", "nnet3-worker"},
    "it needs the extra [recipe] and reads what wav-copy reads": {
        "compute-fbank-feats",
        "compute-mfcc-feats",
    },
    "it prints what is wrong (tests/recognizer)": {"nnet3-recognizer-info"},
    "it serves without end what nnet3-decode reads": {"nnet3-serve"},
    "it trains (tests/recipe)": {
        *("nnet3-train-chain", "nnet3-train-chain-e2e", "nnet3-train-dnn"),
        *("nnet3-train-raw-dnn", "nnet3-train-raw-rnn", "nnet3-train-rnn"),
        "nnet3-train-recognizer",
    },
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with in_corpus(tmp_path_factory.mktemp("corpus")) as folder:
        return folder


def test_every_program_that_reads_files_has_a_row() -> None:
    rows = {command[0] for commands in TARGETS.values() for command in commands}
    assert set(PROGRAMS) - rows == set().union(*NO_ROW.values())


def _issues(name: str) -> Path:
    return ISSUES / re.sub(r"[^A-Za-z0-9.]+", "_", name).strip("_")


def test_every_known_issue_belongs_to_a_reader() -> None:
    files = [path for path in ISSUES.glob("*/*") if path.suffix != ".pyc"]
    assert {path.parent for path in files} <= {_issues(name) for name in READERS}


@pytest.mark.parametrize("name", TARGETS)
def test_undamaged_files_are_read(corpus: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_sound_features(monkeypatch)
    monkeypatch.chdir(corpus)
    Path("BAD").write_bytes(Path(name).read_bytes())
    for command in TARGETS[name]:
        outcome = run(*command)
        assert outcome.crash is None
        assert outcome.status == 0, outcome.log


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_or_refuses_a_damaged_file(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with_sound_features(monkeypatch)
    monkeypatch.chdir(corpus)
    reader = READERS[name]
    samples = [Path(sample).read_bytes() for sample in reader.samples]

    @settings(max_examples=max(3, round(INPUTS * reader.share / SHARES)))
    @given(damaged_files(samples))
    def takes_or_refuses(data: bytes) -> None:
        failure = attempt(reader, data)
        assert failure is None, f"{failure.signature}\n{failure.detail}"

    with guarded():
        for data in (*samples, *(path.read_bytes() for path in _issues(name).glob("*-*"))):
            assert attempt(reader, data) is None
        takes_or_refuses()
