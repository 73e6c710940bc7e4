"""Every command of the README's tour works as it stands, and its table has every program."""

import os
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from nnet3tools.cli.programs import PROGRAMS, main_of
from support.tiny_recognizer import write_recognizer, write_wave

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_tour_runs_as_written(tmp_path: Path) -> None:
    tour = re.search(r"test_readme.py runs these commands -->\n```sh\n(.*?)```", README, re.S)
    assert tour is not None
    commands = tour.group(1).strip().splitlines()
    assert len(commands) == 5
    for name in ("bin", "egs", "docs"):
        os.symlink(ROOT / name, tmp_path / name)
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
    for made in ("0.raw", "0.comp", "0.html", "1.txt"):
        assert (tmp_path / made).stat().st_size > 0


def test_recordings_become_words_by_five_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kaldi_native_fbank")
    block = re.search(r"runs or parses these commands -->\n```sh\n(.*?)```", README, re.S)
    assert block is not None
    train, *commands, serve = [c.partition("#")[0].rstrip() for c in block[1].splitlines()]
    for command in (train, serve):
        name, *words = command.split()
        main_of(name).command_line.parse(words)
    assert len(commands) == 3
    write_recognizer(tmp_path / "exp/words")
    write_wave(tmp_path / "question.wav", seconds=0.5)
    monkeypatch.setenv("PATH", f"{ROOT}/bin:{os.environ['PATH']}")
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
        assert done.stdout


def test_the_table_has_every_program() -> None:
    table = README[README.index("| programs | for |") : README.index("Every program prints")]
    patterns = re.findall(r"`([^`]+)`", table)
    assert len(patterns) >= 10
    for program in PROGRAMS:
        assert any(fnmatch(program, pattern) for pattern in patterns), program
    for pattern in patterns:
        assert any(fnmatch(program, pattern) for program in PROGRAMS), pattern


def test_nothing_points_to_folders_that_a_clone_lacks() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]
    pages += ROOT.glob("egs/*/*.md")
    assert len(pages) >= 8
    for page in pages:
        text = page.read_text()
        assert "../shared" not in text, page
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), f"{page}: {target}"
