"""Log lines: no control characters for the terminal, and error messages of limited length."""

import pytest

from nnet3tools.io import log


def test_control_characters_are_spelt_out(capsys: pytest.CaptureFixture) -> None:
    log.warning("no key 'a\x1b[2J\x07\x9b\t\u00e9'")
    assert capsys.readouterr().err.endswith("no key 'a\\x1b[2J\\x07\\x9b\t\u00e9'\n")
    log.write("usage:\n  b")
    assert capsys.readouterr().err == "usage:\n  b\n"


def test_long_errors_are_cut_and_keep_their_place(capsys: pytest.CaptureFixture) -> None:
    log.error_line(f"net.config:7: unknown key in line '{'a' * 100_000} dim=3'")
    line = capsys.readouterr().err
    assert len(line) < 440
    assert "net.config:7: unknown key" in line
    assert line.endswith("a dim=3'\n")
