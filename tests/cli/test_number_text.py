"""Python's number syntax 1_000 is invalid for Kaldi: in files, configs and options."""

from pathlib import Path

import pytest

from support.programs import run

MODEL = (
    "input-node name=input dim=2\ncomponent name=c type=NoOpComponent dim=2\n"
    "component-node name=c component=c input=Offset(input, {offset})\n"
    "output-node name=output input=c\n"
)
TEXTS = {
    "matrix": ("copy-feats", "u  [\n 1_0 2 ]\n"),
    "integers": ("copy-int-vector", "u 1_0 2\n"),
    "vector": ("copy-vector", "u  [ 1_0 2 ]\n"),
    "length": ("feat-to-len", "u  [\n 1 2_0 ]\n"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_in_tables(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program, text = TEXTS[kind]
    (tmp_path / "in.txt").write_text(text)
    out = ["ark,t:-"]
    assert run(program, f"ark:{tmp_path}/in.txt", *out) != 0
    log = capfd.readouterr().err
    assert "_0" in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    "option", ["--frames-per-chunk=5_0", "--frame-subsampling-factor=1_0", "--acoustic-scale=1_0.5"]
)
def test_in_options(option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.config").write_text(MODEL.format(offset=1))
    (tmp_path / "in.txt").write_text("u  [\n 1 2\n 3 4 ]\n")
    assert run("nnet3-init", tmp_path / "net.config", tmp_path / "0.raw") == 0
    assert run("nnet3-compute", option, tmp_path / "0.raw", f"ark:{tmp_path}/in.txt", "ark:-") != 0
    assert option.split("=")[1] in capfd.readouterr().err


def test_in_models(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config, model = tmp_path / "net.config", tmp_path / "0.raw"
    config.write_text(MODEL.format(offset="1_0"))
    assert run("nnet3-init", config, model) != 0
    config.write_text(MODEL.format(offset=10))
    assert run("nnet3-init", "--binary=false", config, model) == 0
    text = model.read_text()
    assert "<NumComponents> 1 " in text
    model.write_text(text.replace("<NumComponents> 1 ", "<NumComponents> 0_1 "))
    assert run("nnet3-info", model) != 0
    assert "0_1" in capfd.readouterr().err
