"""Programs that create, show, copy and compare networks, as commands."""

import re
from pathlib import Path

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.components.batchnorm import BatchNormComponent
from nnet3tools.nnet.model_file import read_nnet
from nnet3tools.recognizer.models import read_model
from support.configs import in_a_row
from support.programs import run

CONFIG = in_a_row("""input dim=3
a NaturalGradientAffineComponent input-dim=9 output-dim=4 \
input=Append(Offset(input, -2), input, Offset(input, 1))
bn BatchNormComponent dim=4
b AffineComponent input-dim=4 output-dim=5 learning-rate-factor=2.0
scale FixedScaleComponent dim=5 scale=0.5""")

TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State>
</TopologyEntry> </Topology>
"""

TREE = "ContextDependency 1 0 ToPdf TE 0 2 ( NULL TE -1 1 ( CE 4 ) ) EndContextDependency "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a config and its networks 0.raw and 1.raw."""
    (tmp_path / "net.config").write_text(CONFIG)
    for seed in (0, 1):
        args = (f"--srand={seed}", tmp_path / "net.config", tmp_path / f"{seed}.raw")
        assert run("nnet3-init", *args) == 0
    return tmp_path


def test_info_shows_context_and_dimensions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("nnet3-info", folder / "0.raw") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "left-context: 2",
        "right-context: 1",
        "num-parameters: 65",
        "modulus: 1",
    ]
    assert "component-node name=bn component=bn input=a input-dim=4 output-dim=4" in lines
    assert lines[-1].startswith("component name=scale type=FixedScaleComponent")


def test_init_on_top_of_a_network_keeps_its_parameters(folder: Path) -> None:
    (folder / "more.config").write_text("output-node name=output-2 input=a objective=quadratic\n")
    assert run("nnet3-init", folder / "0.raw", folder / "more.config", folder / "2.raw") == 0
    before, after = read_nnet(str(folder / "0.raw")), read_nnet(str(folder / "2.raw"))
    np.testing.assert_array_equal(vectorize(before), vectorize(after))
    assert after.output_dim("output-2") == 4


def test_copy_through_text_and_back_is_the_same_network(folder: Path) -> None:
    assert run("nnet3-copy", "--binary=false", folder / "0.raw", folder / "0.txt") == 0
    assert (folder / "0.txt").read_text().startswith("<Nnet3> \n")
    assert run("nnet3-copy", folder / "0.raw", folder / "copy.raw") == 0
    assert (folder / "copy.raw").read_bytes() == (folder / "0.raw").read_bytes()


def test_copy_changes_learning_rates_scale_and_edits(folder: Path) -> None:
    edits = folder / "edits"
    edits.write_text("# comment\nset-learning-rate name=a learning-rate=0.5\n")
    args = ["--learning-rate=0.1", "--scale=2.0", f"--edits-config={edits}"]
    args.append("--edits=rename-node old-name=b new-name=c; rename-node old-name=a new-name=b")
    assert run("nnet3-copy", *args, folder / "0.raw", folder / "2.raw") == 0
    before, after = read_nnet(str(folder / "0.raw")), read_nnet(str(folder / "2.raw"))
    np.testing.assert_allclose(vectorize(after), 2.0 * vectorize(before))
    rates = [component.learning_rate for _, component in after.updatable_components()]
    np.testing.assert_allclose(rates, [0.5, 0.2], rtol=1e-6)
    assert "component-node name=c component=b input=bn" in after.config_lines()


def test_prepare_for_test_sets_test_mode_and_merges(folder: Path) -> None:
    args = ("--prepare-for-test=true", folder / "0.raw", folder / "2.raw")
    assert run("nnet3-copy", *args) == 0
    nnet = read_nnet(str(folder / "2.raw"))
    assert nnet.component_names == ["a", "bn", "b.scale"]
    batchnorm = nnet.components[1]
    assert isinstance(batchnorm, BatchNormComponent)
    assert batchnorm.test_mode
    assert run("nnet3-copy", folder / "2.raw", folder / "3.raw") == 0
    plain = read_nnet(str(folder / "3.raw")).components[1]
    assert isinstance(plain, BatchNormComponent)
    assert not plain.test_mode, "without the option a copy takes test mode off, as Kaldi's does"


@pytest.mark.parametrize("num_models", [1, 2, 7])
def test_average(folder: Path, num_models: int) -> None:
    models = [folder / f"{i % 2}.raw" for i in range(num_models)]
    assert run("nnet3-average", *models, folder / "mean.raw") == 0
    vectors = [vectorize(read_nnet(str(model))) for model in models]
    mean = vectorize(read_nnet(str(folder / "mean.raw")))
    np.testing.assert_allclose(mean, np.mean(vectors, axis=0), rtol=1e-5, atol=1e-6)


def test_average_with_weights_normalizes_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = folder / "0.raw", folder / "1.raw"
    assert run("nnet3-average", "--weights=3:1", a, b, folder / "mean.raw") == 0
    assert "sum was 4" in capsys.readouterr().err
    expected = 0.75 * vectorize(read_nnet(str(a))) + 0.25 * vectorize(read_nnet(str(b)))
    mean = vectorize(read_nnet(str(folder / "mean.raw")))
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)


def test_show_progress_logs_differences(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("nnet3-copy", "--scale=1.5", folder / "0.raw", folder / "2.raw")
    assert run("nnet3-show-progress", folder / "0.raw", folder / "2.raw") == 0
    err = capsys.readouterr().err
    assert "Relative parameter differences per layer are [ a:0.5 b:0.5 ]" in err


def test_show_progress_tells_the_contexts_if_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("nnet3-show-progress", "--verbose=2", folder / "0.raw", folder / "1.raw") == 0
    assert "neural nets: left-context: 2\nright-context: 1\n" in capsys.readouterr().err


@pytest.mark.parametrize("scale", ["inf", "-inf"])
def test_parameters_may_be_scaled_to_infinity(folder: Path, scale: str) -> None:
    run("nnet3-copy", f"--scale={scale}", folder / "0.raw", folder / "2.raw")
    # The biases are 0, and 0 times infinity is nan.
    assert not np.isfinite(vectorize(read_nnet(str(folder / "2.raw")))).any()
    assert run("nnet3-copy", "--learning-rate=inf", folder / "0.raw", folder / "3.raw") == 255


def test_show_progress_of_different_networks_is_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "x.config").write_text(
        "input-node name=input dim=1\noutput-node name=o input=input\n"
    )
    run("nnet3-init", folder / "x.config", folder / "x.raw")
    assert run("nnet3-show-progress", folder / "0.raw", folder / "x.raw") == 0
    assert "cannot show progress" in capsys.readouterr().err


def test_acoustic_model_from_tree_to_priors(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tree").write_text(TREE)
    (folder / "topo").write_text(TOPOLOGY)
    (folder / "counts").write_text(" [ 1 2 3 4 6 ]\n")
    sources = folder / "tree", folder / "topo", folder / "0.raw"
    assert run("nnet3-am-init", *sources, folder / "0.mdl") == 0
    adjust = folder / "0.mdl", folder / "counts", folder / "1.mdl"
    assert run("nnet3-am-adjust-priors", *adjust) == 0
    capsys.readouterr()
    assert run("nnet3-am-info", folder / "1.mdl") == 0
    out = capsys.readouterr().out
    assert out.startswith("input-dim: 3\nivector-dim: -1\nnum-pdfs: 5\nprior-dimension: 5\n")
    assert "prior-max: 0.375\n# Nnet info follows.\nleft-context: 2\n" in out
    assert run("nnet3-am-copy", folder / "1.mdl", folder / "2.mdl") == 0
    assert (folder / "2.mdl").read_bytes() == (folder / "1.mdl").read_bytes()
    assert run("nnet3-am-copy", "--raw=true", folder / "1.mdl", folder / "2.raw") == 0
    assert (folder / "2.raw").read_bytes() == (folder / "0.raw").read_bytes()
    assert run("nnet3-info", folder / "1.mdl") == 0, "a .mdl file may stand for its network"
    assert run("nnet3-am-init", folder / "1.mdl", folder / "0.raw", folder / "3.mdl") == 0
    assert (folder / "3.mdl").read_bytes() == (folder / "0.mdl").read_bytes()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["nnet3-init", "{}/bad.config", "{}/out"], r"bad\.config:2: .*'inputt'"),
        (["nnet3-init", "{}/none.config", "{}/out"], r"none\.config"),
        (["nnet3-init", "{}/switch.config", "{}/out"], r"switch\.config:3: .*IfDefined.*Switch"),
        (["nnet3-copy", "{}/net.config", "{}/out"], r"net\.config: expected a network"),
        (["nnet3-copy", "--edits=remove-orphan", "{}/0.raw", "{}/out"], "--edits:1: .*orphan"),
        (["nnet3-copy", "--nnet-config={}/bad.config", "{}/0.raw", "{}/out"], "inputt"),
        (["nnet3-average", "--weights=1:2", "{}/0.raw", "{}/out"], "--weights=1:2"),
        (["nnet3-average", "{}/0.raw", "{}/cut.raw", "{}/out"], r"cut\.raw"),
        (["nnet3-am-copy", "{}/0.raw", "{}/out"], "<TransitionModel>"),
    ],
)
def test_errors_are_one_line_and_leave_no_output(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    (folder / "bad.config").write_text("\noutput-node name=x input=inputt\n")
    inputs = "input-node name=a dim=1\ninput-node name=b dim=1\n"
    switch = f"{inputs}output-node name=x input=Switch(a, IfDefined(b))\n"
    (folder / "switch.config").write_text(switch)
    (folder / "cut.raw").write_bytes((folder / "0.raw").read_bytes()[:-60])
    capsys.readouterr()
    assert run(*[word.format(folder) for word in words]) == 255
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"ERROR ({words[0]}")
    assert re.search(what, last)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("name", ["nnet3-init", "nnet3-info", "nnet3-copy", "nnet3-am-copy"])
def test_wrong_number_of_arguments_shows_the_usage(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name) == 1
    assert f"Usage:  {name}" in capsys.readouterr().err


def test_made_up_statistics_depend_on_the_kind_of_model_not_on_the_use_of_priors(
    folder: Path,
) -> None:
    """Reading an acoustic model, Kaldi computes its context, which draws random numbers."""
    (folder / "topo").write_text(TOPOLOGY)
    (folder / "tree").write_text(TREE)
    assert (
        run("nnet3-am-init", folder / "tree", folder / "topo", folder / "0.raw", folder / "m") == 0
    )
    scales = []
    for name, use_priors in (("m", False), ("m", True), ("0.raw", False)):
        tensor.random.seed(1)
        nnet, _ = read_model(str(folder / name), use_priors)
        scales.append(
            next(c for c in nnet.components if isinstance(c, BatchNormComponent)).test_scale
        )
    assert np.array_equal(scales[0], scales[1])
    assert not np.array_equal(scales[0], scales[2])
