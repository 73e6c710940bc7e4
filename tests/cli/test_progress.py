"""Progress lines: overwritten on a terminal, rare in a log file, none for short work."""

import sys

import pytest

from nnet3tools.cli.progress import Progress
from nnet3tools.io import log


def test_lines_in_a_log(capsys: pytest.CaptureFixture) -> None:
    with Progress("egs", total=3) as progress:
        progress.step(3)
    assert capsys.readouterr().err == ""
    with Progress("egs", total=3, log_interval=0.0) as progress:
        progress.step()
        progress.step(2)
    lines = capsys.readouterr().err.splitlines()
    assert ["egs: 1 of 3" in lines[0], "egs: 3 of 3" in lines[1]] == [True, True]
    assert lines[1].endswith(", 0 s left")


def test_one_line_at_a_terminal(capsys: pytest.CaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("nnet3tools.cli.progress.time.monotonic", iter(range(9)).__next__)
    with Progress("egs") as progress:
        progress.step()
        progress.step()
    err = capsys.readouterr().err
    assert "\n" not in err
    assert err.endswith("\r\033[K")
    assert "egs: 2, 1 a second" in err


def test_log_lines_take_the_place_of_the_progress_line(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("nnet3tools.cli.progress.time.monotonic", iter(range(9)).__next__)
    with Progress("egs") as progress:
        progress.step()
        log.warning("odd")
        progress.step()
        sys.stderr.write("a line of another program\n")
    shown = [line.split("\033[K")[-1] for line in capsys.readouterr().err.split("\n")]
    assert shown[0].startswith("WARNING")
    # The cursor stays in front of the progress line, so that it is overwritten.
    assert shown[1].endswith("\ra line of another program")
    assert shown[2] == ""
