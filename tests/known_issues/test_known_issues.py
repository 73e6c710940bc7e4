"""Inputs that once made a reader fail: one file each, in a folder named after the reader."""

import re
from pathlib import Path

import pytest

from support.fuzz_corpus import in_corpus
from support.fuzz_readers import READERS
from support.fuzz_trial import attempt, guarded

HERE = Path(__file__).parent
FOLDERS = {re.sub(r"[^A-Za-z0-9.]+", "_", name).strip("_"): name for name in READERS}
CASES = [
    (FOLDERS[path.parent.name], path)
    for path in sorted(HERE.glob("*/*-*"))
    if path.parent.name in FOLDERS
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with in_corpus(tmp_path_factory.mktemp("corpus")) as folder:
        return folder


@pytest.mark.parametrize(("name", "path"), CASES, ids=[path.name for _, path in CASES])
def test_a_fault_that_was_mended(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: Path
) -> None:
    monkeypatch.chdir(corpus)
    with guarded():
        assert attempt(READERS[name], path.read_bytes()) is None


def test_every_case_belongs_to_a_reader() -> None:
    found = HERE.glob("*/*-*")
    files = [path for path in found if path.is_file() and path.suffix != ".pyc"]
    assert len(CASES) == len(files)
