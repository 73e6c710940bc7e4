"""docs/own-data.md: its commands run as written, and its tables are the programs'."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from nnet3tools.recipe.own_data import manifest
from nnet3tools.recipe.own_data.corpus import read_corpus
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from support.spoken_words import WORDS, write_manifest, write_recordings

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/own-data.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    for line in block.strip().splitlines()
    if line.startswith(("nnet3-check-data", "nnet3-make-lm"))
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_manifest(tmp_path / "recordings.tsv", write_recordings(tmp_path))
    (tmp_path / "lexicon.txt").write_text("".join(f"{w} {' '.join(w)}\n" for w in WORDS))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/text").write_text("".join(f"speaker1-{w} {w}\n" for w in WORDS))
    (tmp_path / "extra.txt").write_text("one two\nthree four five\n")
    (tmp_path / "other.txt").write_text("two one\n")
    return tmp_path


def test_the_commands_run_as_written(data: Path) -> None:
    assert len(COMMANDS) == 3
    path = {**os.environ, "PATH": f"{ROOT}/bin:{os.environ['PATH']}"}
    for command in COMMANDS:
        done = subprocess.run(
            ["bash", "-c", command], cwd=data, env=path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert "ngram 2=" in (data / "lm.arpa").read_text()


def examples() -> dict[str, str]:
    """The manifests that the page shows, by their kind."""
    blocks = re.findall(r"`recordings\.(\w+)`.*?\n\n((?:    .*\n)+)", PAGE)
    found = {kind: re.sub(r"^    ", "", block, flags=re.M) for kind, block in blocks}
    found["tsv"] = re.sub(r" {2,}", "\t", found["tsv"])
    return found


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_the_examples_are_manifests(kind: str, tmp_path: Path) -> None:
    (tmp_path / f"recordings.{kind}").write_text(examples()[kind])
    faults = FaultList()
    corpus = read_corpus(str(tmp_path / f"recordings.{kind}"), faults)
    assert len(corpus.utterances) == examples()[kind].count("speaker1/")
    assert {utterance.speaker for utterance in corpus.utterances} == {"speaker1"}
    assert not faults.num_errors


def test_the_tables_are_those_of_the_program() -> None:
    for fault in Fault:
        assert f"| {fault.title} | {fault.severity.value} | {fault.expected} |\n" in PAGE
    for field in ("sound", "text", "speaker", "id"):
        names = ", ".join(f"`{name}`" for name in manifest.COLUMN_NAMES[field])
        assert f"| {field} | {names} |" in PAGE
