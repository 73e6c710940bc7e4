"""nnet3-quantize: models that programs take like float ones, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.holders import MATRIX
from nnet3tools.nnet.model_file import read_nnet
from nnet3tools.tensor.cpu import choice
from support.configs import in_a_row
from support.programs import run
from support.shell import Shell

CONFIG = in_a_row("""input dim=4
a NaturalGradientAffineComponent input-dim=4 output-dim=30
relu RectifiedLinearComponent dim=30
b NaturalGradientAffineComponent input-dim=90 output-dim=20 \
input=Append(Offset(relu, -1), relu, Offset(relu, 1))
c AffineComponent input-dim=20 output-dim=6
s LogSoftmaxComponent dim=6""")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> Shell:
    """A folder with 0.raw and features."""
    monkeypatch.chdir(tmp_path)
    Path("net.config").write_text(CONFIG)
    assert run("nnet3-init", "net.config", "0.raw") == 0
    made = Shell(tmp_path, capfd)
    rng = np.random.default_rng(1)
    names = {f"u{i}": rng.normal(size=(40 + i, 4)).astype(np.float32) for i in range(9)}
    made.write("feats", MATRIX, names)
    return made


def affine_components(model: str) -> list:
    return [c for c in read_nnet(model).components if hasattr(c, "linear_params")]


def computed(shell: Shell, model: str) -> np.ndarray:
    shell("nnet3-compute", "--use-gpu=no", model, "ark:feats", "ark:out")
    return np.concatenate(list(shell.read("out").values()))


def test_packed_floats_give_the_outputs_of_the_float_network_and_its_bytes(shell: Shell):
    log = shell("nnet3-quantize", "--bits=32", "0.raw", "q.raw")
    assert "Component a: packed float32, rounding error 0" in log
    np.testing.assert_allclose(computed(shell, "q.raw"), computed(shell, "0.raw"), atol=1e-5)
    shell("nnet3-info", "q.raw")
    assert "linear-params=packed:float32" in shell.out
    shell("nnet3-copy", "--binary=false", "q.raw", "q.txt")
    for name, tolerance in (("q.raw", 0.0), ("q.txt", 1e-6)):
        shell("nnet3-copy", "--dequantize=true", name, "float.raw")
        for found, exact in zip(*map(affine_components, ("float.raw", "0.raw")), strict=True):
            np.testing.assert_allclose(found.linear_params, exact.linear_params, tolerance)


@pytest.mark.parametrize("options", [(), ("--bits=16",), ("--calibrate=ark:feats",)])
def test_outputs_are_close_and_the_same_by_every_path(shell: Shell, options, monkeypatch):
    log = shell("nnet3-quantize", *options, "0.raw", "q.raw")
    assert "Made TDNN components of b" in log
    assert "rounding error" in log
    expected, found = computed(shell, "0.raw"), computed(shell, "q.raw")
    assert 0 < np.abs(found - expected).max() < (0.01 if "--bits=16" in options else 0.3)
    monkeypatch.setattr(choice, "_chosen", choice.CpuKernels.NUMPY)
    by_numpy = computed(shell, "q.raw")
    # the first affine component and log-softmax are float
    np.testing.assert_allclose(by_numpy, found, atol=0.05)


def test_converted_back_the_network_can_be_trained_and_read(shell: Shell):
    shell("nnet3-quantize", "0.raw", "q.raw")
    shell("nnet3-info", "q.raw")
    assert "type=QuantizedTdnnComponent" in shell.out
    assert "linear-params=quantized:int8" in shell.out
    shell("nnet3-copy", "--dequantize=true", "q.raw", "float.raw")
    types = [c.type_name for c in read_nnet("float.raw").components]
    assert types[2:4] == ["TdnnComponent", "AffineComponent"]
    np.testing.assert_allclose(computed(shell, "float.raw"), computed(shell, "q.raw"), atol=0.2)


def test_a_text_model_is_the_same(shell: Shell):
    shell("nnet3-quantize", "0.raw", "q.raw")
    shell("nnet3-copy", "--binary=false", "q.raw", "q.txt")
    shell("nnet3-copy", "q.txt", "again.raw")
    shell("nnet3-copy", "--binary=false", "again.raw", "again.txt")
    assert Path("again.txt").read_bytes() == Path("q.txt").read_bytes()
    exact, rounded = (read_nnet(name).components[2].weights for name in ("q.raw", "q.txt"))
    assert (exact.values == rounded.values).all()


def test_what_is_refused_names_the_reason(shell: Shell):
    shell("nnet3-quantize", "0.raw", "q.raw")
    refused = {
        ("nnet3-quantize", "q.raw", "out"): "q.raw: the network is quantized (components 'b', 'c')",
        ("nnet3-quantize", "--bits=4", "0.raw", "out"): "--bits=4: expected 8, 16 or 32",
        (
            "nnet3-quantize",
            "--bits=32",
            "--calibrate=ark:feats",
            "0.raw",
            "out",
        ): "rounds no inputs",
        (
            "nnet3-quantize",
            "--calibrate=ark:feats",
            "--calibrate-egs=ark:e",
            "0.raw",
            "out",
        ): "give --calibrate or --calibrate-egs, not both",
        ("nnet3-quantize", "--calibrate-egs=ark:feats", "0.raw", "out"): ") feats: key 'u0'",
        ("nnet3-quantize", "--float-components=*", "0.raw", "out"): "no component to quantize",
        ("nnet3-quantize", "--float-components=b,zz*", "0.raw", "out"): "matches 'zz*'",
        ("nnet3-average", "q.raw", "q.raw", "out"): "q.raw: a quantized network cannot be trained",
        ("nnet3-copy", "--scale=2", "q.raw", "out"): "q.raw: a quantized network cannot be",
    }
    for command, reason in refused.items():
        assert reason in shell.error(*command)
    Path("wrong.config").write_text("component name=b type=QuantizedAffineComponent input-dim=3\n")
    assert "nnet3-quantize makes it" in shell.error("nnet3-init", "wrong.config", "out")
    assert not Path("out").exists()


def make_examples(shell: Shell) -> None:
    Path("post").write_text("".join(f"u{i}{' [ 1 1 ]' * (40 + i)}\n" for i in range(9)))
    options = "--num-pdfs=6", "--left-context=1", "--right-context=1"
    shell("nnet3-get-egs", *options, "ark:feats", "ark:post", "ark:egs")
    shell("nnet3-merge-egs", "ark:egs", "ark:merged")


def test_examples_calibrate_like_the_features_that_they_are_made_from(shell: Shell):
    make_examples(shell)
    limits = []
    for option in ("--calibrate=ark:feats", "--calibrate-egs=ark:merged"):
        shell("nnet3-quantize", option, "0.raw", "q.raw")
        limits.append([read_nnet("q.raw").components[k].weights.limits for k in (2, 3)])
    np.testing.assert_allclose(limits[1], limits[0], rtol=1e-5)
    log = shell("nnet3-quantize", "--calibrate-egs=ark:merged", "0.raw", "q.raw")
    assert "Calibrated with" in log


def test_a_component_that_the_calibration_does_not_reach_has_the_limits_of_each_row(shell: Shell):
    extra = "output-node name=other input=d\ncomponent-node name=d component=d input=relu\n"
    line = "component name=d type=AffineComponent input-dim=30 output-dim=3\n"
    Path("more.config").write_text(CONFIG + line + extra)
    shell("nnet3-init", "more.config", "more.raw")
    shell("nnet3-quantize", "--calibrate=ark:feats", "more.raw", "q.raw")
    sizes = [c.weights.limits.size for c in read_nnet("q.raw").components if c.is_quantized]
    assert sizes == [2, 2, 0]


def test_training_is_refused_in_one_line(shell: Shell):
    shell("nnet3-quantize", "0.raw", "q.raw")
    make_examples(shell)
    error = shell.error("nnet3-train", "--use-gpu=no", "q.raw", "ark:merged", "out")
    assert "q.raw: the network is quantized (components 'b', 'c'); nnet3-copy" in error
    assert not Path("out").exists()
