"""Options, and files they name, that would take all memory or time are refused in one line."""

from pathlib import Path

import pytest

from nnet3tools.decoding.options import LatticeDecoderOptions
from nnet3tools.errors import OptionError
from nnet3tools.recognizer.json_results import json_line
from nnet3tools.tensor import arrays
from support.programs import run


def test_a_file_of_options_without_end(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("nnet3-info", "--config=/dev/zero", "0.raw") != 0
    err = capfd.readouterr().err
    assert "at most 16777216 bytes" in err
    assert "Traceback" not in err


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
