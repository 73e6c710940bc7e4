"""Sixty recordings of ten words become a recognizer, by the commands of docs/own-data.md."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.features.resample import resample
from nnet3tools.recipe.speech.sizes import SIZES, Size
from support.spoken_words import ESPEAK, WORDS, write_espeak_recordings, write_manifest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/own-data.md").read_text()


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


def as_stereo_flac(folder: Path, rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Write the recordings again as stereo FLAC at 44.1 kHz; rows of the new names."""
    soundfile = pytest.importorskip("soundfile")
    found = []
    for name, word, speaker in rows:
        samples, rate = soundfile.read(folder / name, dtype="float32")
        louder = resample(samples, rate, 44100)
        new = name.replace(".wav", ".flac")
        soundfile.write(folder / new, np.stack([louder, 0.8 * louder], axis=1), 44100)
        (folder / name).unlink()
        found.append((new, word, speaker))
    return found


@pytest.mark.slow
@pytest.mark.skipif(ESPEAK is None, reason="no espeak-ng")
@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_words_of_a_voice_that_was_kept_out_are_recognized(tmp_path: Path, kind: str) -> None:
    rows = write_espeak_recordings(tmp_path)
    if kind == "flac":
        rows = as_stereo_flac(tmp_path, rows)
    write_manifest(tmp_path / "recordings.tsv", rows)
    lines = [line for line in PAGE.splitlines() if line.startswith("nnet3-train-recognizer")]
    (train,) = [line for line in lines if "recordings.tsv none" in line]
    one = next(name for name, word, _ in rows if word == "one")
    environment = {**os.environ, "PATH": f"{ROOT}/bin:{os.environ['PATH']}"}
    train = train.replace("nnet3-train-recognizer", "nnet3-train-recognizer --use-gpu=no")
    for command in (train, f"nnet3-decode recognizer {one}"):
        done = subprocess.run(
            command.split(), cwd=tmp_path, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert done.stdout.split()[1:2] == [b"one"]  # one of the voices trained on, or the held-out one
    results = (tmp_path / "recognizer" / "work" / "results").read_text()
    name, percent, errors, words = results.split()
    assert (name, words) == ("held_out", str(len(WORDS)))
    assert float(percent) <= 40.0, f"{errors} of {words} words are wrong"
