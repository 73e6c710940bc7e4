"""docs/own-data.md: its commands run as written, and its tables are the programs'."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from nnet3tools.recipe.own_data import manifest
from nnet3tools.recipe.own_data.corpus import read_corpus
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from support.spoken_words import (
    ESPEAK,
    WORDS,
    write_espeak_recordings,
    write_manifest,
    write_recordings,
)

pytest.importorskip("soundfile")

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/own-data.md").read_text()
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    for line in block.strip().splitlines()
]
COMMANDS = [line for line in LINES if line.startswith(("nnet3-check-data", "nnet3-make-lm"))]
TRAINING = [line for line in LINES if line not in COMMANDS]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_manifest(tmp_path / "recordings.tsv", write_recordings(tmp_path))
    (tmp_path / "lexicon.txt").write_text("".join(f"{w} {' '.join(w)}\n" for w in WORDS))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/text").write_text("".join(f"speaker1-{w} {w}\n" for w in WORDS))
    (tmp_path / "extra.txt").write_text("one two\nthree four five\n")
    (tmp_path / "other.txt").write_text("two one\n")
    return tmp_path


def call(command: str, folder: Path) -> str:
    """The output of a command of the page, which must succeed."""
    path = {**os.environ, "PATH": f"{ROOT}/bin:{os.environ['PATH']}"}
    words = ["bash", "-c", command]
    done = subprocess.run(words, cwd=folder, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(ESPEAK is None, reason="espeak-ng is not installed")
def test_sixty_recordings_become_a_recognizer(tmp_path: Path) -> None:
    rows = write_espeak_recordings(tmp_path / "speaker1")
    write_manifest(tmp_path / "recordings.tsv", [(f"speaker1/{n}", *rest) for n, *rest in rows])
    (tmp_path / "speaker1/en-us-one.wav").with_name("one.wav").write_bytes(
        (tmp_path / "speaker1/en-us-one.wav").read_bytes()
    )
    assert [command.split()[0] for command in TRAINING] == [
        "nnet3-train-recognizer",
        "nnet3-decode",
    ]
    outputs = [call(command, tmp_path) for command in TRAINING]
    assert outputs[-1] == "one one\n"
    part, percent, errors, words = (tmp_path / "recognizer/work/results").read_text().split()
    assert (part, words) == ("held_out", "10")
    assert int(errors) <= 2, percent


def test_the_commands_run_as_written(data: Path) -> None:
    assert len(COMMANDS) == 3
    for command in COMMANDS:
        call(command, data)
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
