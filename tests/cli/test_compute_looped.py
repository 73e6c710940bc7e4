"""nnet3-compute --looped=true as a command."""

from pathlib import Path

import numpy as np
import pytest

from support.configs import in_a_row
from support.programs import read_table, run, write_table

CONFIG = in_a_row("""input dim=3
a AffineComponent input-dim=13 output-dim=4 param-stddev=0.5 \
input=Append(Offset(input, -1), input, Offset(input, 1), IfDefined(Offset(tanh, -2)))
tanh TanhComponent dim=4""")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").write_text(CONFIG)
    assert run("nnet3-init", "--srand=2", "config", "raw") == 0
    rng = np.random.default_rng(1)
    lengths = {"short": 2, "long": 47}
    features = {k: rng.normal(size=(n, 3)).astype(np.float32) for k, n in lengths.items()}
    write_table("ark:feats.ark", features)
    return "raw"


def test_looped_is_one_chunk_of_everything(model: str) -> None:
    common = ("nnet3-compute", "--use-gpu=no")
    assert run(*common, "--frames-per-chunk=100", model, "ark:feats.ark", "ark:whole.ark") == 0
    looped = (*common, "--looped=true", "--frames-per-chunk=5")
    assert run(*looped, model, "ark:feats.ark", "ark:looped.ark") == 0
    whole, got = read_table("ark:whole.ark"), read_table("ark:looped.ark")
    assert got.keys() == whole.keys() == {"short", "long"}
    for key, value in whole.items():
        np.testing.assert_allclose(got[key], value, atol=1e-5)


@pytest.mark.parametrize("option", ["--extra-left-context=3", "--read-cache=x", "--write-cache=x"])
def test_options_that_would_have_no_effect_are_refused(model: str, option: str, capfd) -> None:
    words = ("nnet3-compute", "--use-gpu=no", "--looped=true", option)
    assert run(*words, model, "ark:feats.ark", "ark:out.ark") == 255
    assert f"{option.split('=')[0]} does not go with --looped=true" in capfd.readouterr().err
    assert not Path("out.ark").exists()
