"""docs/own-data.md: its training works, its manifests are read, its tables are the programs'."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.features.resample import resample
from nnet3tools.recipe.own_data import manifest
from nnet3tools.recipe.own_data.corpus import read_corpus
from nnet3tools.recipe.own_data.faults import Fault, FaultList
from nnet3tools.recipe.speech.sizes import SIZES, Size
from support.pages import blocks_of
from support.spoken_words import (
    ESPEAK,
    write_espeak_recordings,
    write_manifest,
)

soundfile = pytest.importorskip("soundfile")

ROOT = Path(__file__).parent.parent
PAGE_FILE = ROOT / "docs/own-data.md"
PAGE = PAGE_FILE.read_text()
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    for line in block.strip().splitlines()
]
TRAINING = [line for line in LINES if line.startswith(("nnet3-train", "nnet3-decode"))]


def call(command: str, folder: Path) -> str:
    """The output of a command of the page, which must succeed."""
    path = {**os.environ, "PATH": f"{ROOT}/bin:{os.environ['PATH']}"}
    words = ["bash", "-c", command]
    done = subprocess.run(words, cwd=folder, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
    return done.stdout


def as_stereo_flac(name: Path) -> None:
    """Replace a wave file by a stereo FLAC file at 44.1 kHz."""
    samples, rate = soundfile.read(name, dtype="float32")
    louder = resample(samples, rate, 44100)
    soundfile.write(name.with_suffix(".flac"), np.stack([louder, 0.8 * louder], axis=1), 44100)
    name.unlink()


@pytest.mark.slow
@pytest.mark.skipif(ESPEAK is None, reason="espeak-ng is not installed")
@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_sixty_recordings_become_a_recognizer(tmp_path: Path, kind: str) -> None:
    rows = write_espeak_recordings(tmp_path / "speaker1")
    if kind == "flac":
        for name, *_ in rows:
            as_stereo_flac(tmp_path / "speaker1" / name)
        rows = [(name.replace(".wav", ".flac"), *rest) for name, *rest in rows]
    write_manifest(tmp_path / "recordings.tsv", [(f"speaker1/{n}", *rest) for n, *rest in rows])
    (tmp_path / f"speaker1/one.{kind}").symlink_to(f"en-us-one.{kind}")
    assert [command.split()[0] for command in TRAINING] == [
        "nnet3-train-recognizer",
        "nnet3-decode",
    ]
    outputs = [call(command.replace("one.wav", f"one.{kind}"), tmp_path) for command in TRAINING]
    assert outputs[-1] == "one one\n"
    part, percent, errors, words = (tmp_path / "recognizer/work/results").read_text().split()
    assert (part, words) == ("held_out", "10")
    assert int(errors) <= {"wav": 2, "flac": 4}[kind], percent


def examples() -> dict[str, str]:
    """The manifests that the page shows, by their kind."""
    texts = [b.text for b in blocks_of(PAGE_FILE) if b.language != "sh" and "in" in b.words]
    found = dict(zip(("tsv", "csv", "jsonl"), texts, strict=True))
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


def cells(size: Size) -> list[str]:
    """The cells of a size's row in the page's table."""

    def pair(values: tuple[float, float], between: str) -> str:
        first, last = (np.format_float_positional(value, trim="-") for value in values)
        return first if first == last else f"{first}{between}{last}"

    return [
        f"`{size.name}`",
        "" if size.most_hours == float("inf") else f"{size.most_hours:g}",
        f"{size.dim}, {size.bottleneck_dim}, {len(size.strides)}",
        str(size.num_copies),
        ", ".join(f"{speed:g}" for speed in size.speeds),
        "yes" if size.has_spec_augment else "",
        "{}, {}".format(*size.passes),
        pair(size.learning_rates, " to "),
        pair(size.l2, ", "),
        str(size.min_biphone_count),
        pair(size.num_jobs, " to "),
    ]


def test_the_table_of_sizes_is_the_programs() -> None:
    rows = [
        line for line in PAGE.splitlines() if re.match(r"\| `(tiny|small|medium|large|huge)`", line)
    ]
    found = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert found == [cells(size) for size in SIZES]
