"""Commands, code and outputs of README.md, CONTRIBUTING.md and docs/: run and compared."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.holders import DOUBLE_MATRIX
from nnet3tools.nnet.model_file import write_nnet
from nnet3tools.optimizer.pipeline import PASSES
from nnet3tools.training.example import EXAMPLE
from support.generated import PARTS, PICTURES, parts_of
from support.pages import LANGUAGES, PAGES, ROOT, PageRunner, blocks_of, matches, simple_commands
from support.programs import write_table
from support.spoken_words import WORDS, write_manifest, write_recordings
from support.tiny_recognizer import write_recognizer, write_wave
from support.training_helpers import minibatch, network


def prepare_readme(folder: Path) -> None:
    for name in ("bin", "egs", "docs"):
        os.symlink(ROOT / name, folder / name)
    write_recognizer(folder / "exp/words")
    os.symlink("words", folder / "exp/chain")
    shutil.copy(folder / "exp/words/final.mdl", folder / "final.raw")
    write_wave(folder / "question.wav", seconds=0.5)


def prepare_live(folder: Path) -> None:
    write_recognizer(folder / "exp/chain")
    write_wave(folder / "one.wav", 0.7)


def prepare_recognizer(folder: Path) -> None:
    prepare_live(folder)
    (folder / "data/train").mkdir(parents=True)
    statistics = f"ark,scp:{folder}/cmvn.ark,{folder}/data/train/cmvn.scp"
    write_table(statistics, {"one": np.ones((2, 14))}, DOUBLE_MATRIX)


def prepare_own_data(folder: Path) -> None:
    pytest.importorskip("soundfile")
    write_manifest(folder / "recordings.tsv", write_recordings(folder))
    (folder / "lexicon.txt").write_text("".join(f"{w} {' '.join(w)}\n" for w in WORDS))
    (folder / "data").mkdir()
    (folder / "data/text").write_text("".join(f"speaker1-{w} {w}\n" for w in WORDS))
    (folder / "extra.txt").write_text("one two\nthree four five\n")
    (folder / "other.txt").write_text("two one\n")


def prepare_gpu(folder: Path) -> None:
    write_nnet(network(), f"{folder}/0.raw")
    examples = {f"m{i}": minibatch(seed=i) for i in range(8)}
    write_table(f"ark:{folder}/merged.egs", examples, EXAMPLE)


def prepare_python(folder: Path) -> None:
    """Half a second of noise as question.wav and question.raw, and a model directory."""
    write_recognizer(folder / "model")
    samples = np.random.default_rng(6).normal(0, 2000, 8000).astype("<i2").tobytes()
    header = b"RIFF" + (36 + 16000).to_bytes(4, "little") + b"WAVEfmt \x10\0\0\0\1\0\1\0"
    header += (16000).to_bytes(4, "little") + (32000).to_bytes(4, "little") + b"\2\0\x10\0data"
    (folder / "question.wav").write_bytes(header + (16000).to_bytes(4, "little") + samples)
    (folder / "question.raw").write_bytes(samples)


PREPARATIONS: dict[str, Callable[[Path], None]] = {
    "README.md": prepare_readme,
    "gpu.md": prepare_gpu,
    "live.md": prepare_live,
    "own-data.md": prepare_own_data,
    "python.md": prepare_python,
    "recognizer.md": prepare_recognizer,
}
"""What the blocks of a page need in their folder, beyond an empty one."""

NEEDS = {
    "README.md": "kaldi_native_fbank",
    "live.md": "kaldi_native_fbank",
    "python.md": "kaldi_native_fbank",
    "recognizer.md": "kaldi_native_fbank",
    "own-data.md": "soundfile",
    "expression.md": "onnx",
}
"""The optional package without which a page's blocks cannot run."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_shows_what_its_commands_and_code_print(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    monkeypatch.chdir(tmp_path)
    PREPARATIONS.get(page.name, lambda folder: None)(tmp_path)
    runner = PageRunner(tmp_path, request.config.getoption("--slow"))
    if page.name == "README.md":
        runner.names["features"] = np.zeros((20, 13), np.float32)
    for block in blocks_of(page):
        runner.run(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_command_or_output_of_a_page_escapes(page: Path) -> None:
    text = page.read_text()
    blocks = blocks_of(page)
    assert len(blocks) * 2 == len(re.findall("^```", text, re.M))
    for before, block in zip([None, *blocks], blocks, strict=False):
        assert block.language in LANGUAGES, block.place
        if block.is_output:
            assert before is not None, block.place
            assert before.is_run or before.is_output, f"{block.place}: the output of what?"
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    assert not re.findall(r"\n\n    \S.*", outside), "an indented block: give it a language"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_has_a_section_twice(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    headings = re.findall(r"^##+ .*$", prose, re.M)
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_what_the_declarations_say(page: Path) -> None:
    for name, text in parts_of(page).items():
        assert text == PARTS[name](), f"{name}: run python -m support.generated in tests/"


@pytest.mark.parametrize("name", PICTURES)
def test_generated_pictures_are_what_the_code_draws(name: str) -> None:
    assert (ROOT / name).read_text() == PICTURES[name]()


def test_every_generated_part_is_on_a_page() -> None:
    assert sorted(name for page in PAGES for name in parts_of(page)) == sorted(PARTS)


def test_every_pass_is_on_its_page() -> None:
    page = (ROOT / "docs/optimization.md").read_text()
    names = re.findall(r"^\| ([a-z-]+) \|", page[: page.index("## ")], re.M)[1:]
    assert names == [step.name for step in PASSES]


def test_output_with_dots_stands_for_any_text() -> None:
    assert matches("a\n...\nz\n", "a\nb\nc\nz\n")
    assert matches("a ... c\n", "a b c\n")
    assert not matches("a ... c\n", "a b\nc\n")
    assert not matches("a\n", "a\nb\n")


def test_commands_of_a_pipeline_are_separate() -> None:
    line = "A=1 one --x=2 < in | two 'a b' > out && three # comment"
    words = [["A=1", "one", "--x=2"], ["two", "a b"], ["three"]]
    assert list(simple_commands(line)) == words
