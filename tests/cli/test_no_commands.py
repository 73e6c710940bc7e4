"""--no-commands: no file name of an argument, script file or config starts a command."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnet3tools.cli.programs import main_of
from nnet3tools.options import NO_COMMANDS
from support import tiny_training
from support.programs import run

CONFIG = "component name=a type=FixedAffineComponent matrix=\"touch made; echo '[ 1 2 ]' |\"\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(NO_COMMANDS, raising=False)
    Path("net.config").write_text(CONFIG)
    Path("feats").write_text("u  [\n 1 2 ]\n")
    Path("scp").write_text("u touch made; cat feats |\n")
    yield
    assert not Path("made").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("copy-feats", "ark:touch made; cat feats |", "ark:-"),
        ("copy-feats", "scp:scp", "ark:-"),
        ("copy-feats", "ark:feats", "ark:| touch made; cat"),
        ("nnet3-init", "net.config", "0.raw"),
        ("copy-feats", "--config=touch made |", "ark:feats", "ark:-"),
    ],
)
@pytest.mark.parametrize("by", ["option", "environment"])
def test_no_command_starts(
    words: tuple[str, ...], by: str, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    program, *rest = words
    if by == "environment":
        monkeypatch.setenv(NO_COMMANDS, "1")
    assert run(program, *(["--no-commands=true"] if by == "option" else []), *rest) != 0
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert "--no-commands refuses commands" in err or "config file" in err


@pytest.mark.parametrize("executor", ["local", "cmd", "slurm"])
def test_trainings_are_refused_before_their_first_stage(
    executor: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny_training.make_data(tmp_path)
    tiny_training.make_dir(tmp_path)
    Path("data/feats.scp").write_text("s0-u00 touch made; cat feats |\n")
    before = sorted(os.listdir())
    words = (*tiny_training.OPTIONS, "--dir=.", f"--executor={executor}", "--cmd=touch made")
    assert run("nnet3-train-raw-dnn", "--no-commands", *words) == 255
    assert "--no-commands: a training starts programs in pipes" in capfd.readouterr().err
    assert sorted(os.listdir()) == before


def test_programs_of_a_program_refuse_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(NO_COMMANDS, "")  # restored after the option has set it
    main_of("nnet3-copy").command_line.parse(["--no-commands", "none", "-"])
    child = [sys.executable, "-m", "nnet3tools.cli", "copy-feats", "scp:scp", "ark:-"]
    assert subprocess.run(child).returncode == 255
    assert "--no-commands refuses commands" in capfd.readouterr().err


def test_the_option_holds_for_no_later_program_of_the_process() -> None:
    assert run("copy-feats", "--no-commands", "ark:cat feats |", "ark:out") != 0
    assert run("copy-feats", "ark:cat feats |", "ark:out") == 0
