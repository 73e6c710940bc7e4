"""Options, and files they name, that would take all memory or time are refused in one line."""

import os
import time
from pathlib import Path

import pytest

from nnet3tools.decoding.options import LatticeDecoderOptions
from nnet3tools.errors import OptionError
from nnet3tools.io import files
from nnet3tools.io.reader import Reader
from nnet3tools.recognizer.json_results import json_line
from nnet3tools.tensor import arrays
from support.programs import run

ENDLESS = ("/dev/zero", "yes |", "yes | tr -d '\\n' |")
LIMIT = 1 << 24


def refusal(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> str:
    """The one ERROR line of a program that must write nothing, in the working directory."""
    Path("net").write_text("input-node name=input dim=2\noutput-node name=output input=input\n")
    assert run("nnet3-init", "net", "0.raw") == 0
    assert run(*words) != 0
    (error,) = (x for x in capfd.readouterr().err.splitlines() if x.startswith("ERROR"))
    assert sorted(os.listdir()) == ["0.raw", "net"]
    return error


@pytest.mark.parametrize("without_end", ENDLESS)
@pytest.mark.parametrize(
    "words",
    [
        ("nnet3-info", "--config={}", "0.raw"),
        ("nnet3-init", "{}", "1.raw"),
        ("nnet3-copy", "--edits-config={}", "0.raw", "1.raw"),
        ("nnet3-xconfig-to-configs", "--xconfig-file={}", "--config-dir=configs"),
    ],
)
def test_configs_without_end(
    words: tuple[str, ...], without_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    error = refusal(tuple(word.replace("{}", without_end) for word in words), capfd)
    expected = "binary bytes" if without_end == "/dev/zero" else f"at most {LIMIT} bytes of text"
    assert expected in error


@pytest.mark.parametrize(
    "words",
    [
        ("copy-feats", "scp:yes |", "ark:-"),
        ("copy-feats", "ark:echo 'u ['; yes 1 |", "ark:-"),
        ("copy-int-vector", "ark:yes 1 | tr '\\n' ' ' |", "ark:-"),
        ("nnet3-compile", "0.raw", "yes |", "-"),
        ("nnet3-copy", "echo '<Nnet3>'; yes 1 | tr '\\n' ' ' |", "1.raw"),
    ],
)
def test_data_without_end(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for function in (Reader._find, Reader.read_rest, files.read_text, files.read_text_lines):
        monkeypatch.setattr(function, "__defaults__", (LIMIT,))  # in place of 1 GiB, which take 4 s
    assert f"at most {LIMIT} bytes of text" in refusal(words, capfd)


def test_formulas_that_take_minutes_to_compile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    formula = "+".join(["x"] * 600_000)
    line = f'component name=a type=ExpressionComponent dim=2 expression="{formula}"'
    (tmp_path / "c").write_text(line)
    began = time.process_time()
    assert run("nnet3-init", tmp_path / "c", tmp_path / "0.raw") != 0
    assert time.process_time() - began < 5
    assert "at most 500000 operators and arguments, found 599999" in capfd.readouterr().err


def test_hash_tables_larger_than_memory() -> None:
    with pytest.raises(OptionError, match="--hash-ratio from 1 to 1000"):
        LatticeDecoderOptions(hash_ratio=1e9).check()


@pytest.mark.parametrize("make", [arrays.zeros, arrays.empty])
def test_arrays_larger_than_the_machine(make) -> None:
    with pytest.raises(MemoryError, match="1000000000 x 1000000"):
        make((10**9, 10**6))


@pytest.mark.parametrize(
    "line",
    [
        "type=BlockAffineComponent input-dim=1000000000 output-dim=1000000000 num-blocks=1",
        "type=LstmNonlinearityComponent cell-dim=500000000",
    ],
)
def test_components_larger_than_the_machine(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(arrays, "_MEMORY", 1 << 30)
    (tmp_path / "c").write_text(f"component name=a {line}\n")
    assert run("nnet3-init", tmp_path / "c", tmp_path / "0.raw") != 0
    err = capfd.readouterr().err
    assert "memory" in err
    assert "Traceback" not in err


def test_words_that_are_no_utf_8_leave_the_json_valid() -> None:
    assert json_line({"text": "a\udcffb"}).encode() == '{"text": "a\ufffdb"}\n'.encode()
