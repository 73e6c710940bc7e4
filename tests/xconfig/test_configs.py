"""nnet3-xconfig-to-configs: the files of a config directory, and files that it must not change."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools.nnet.model_file import apply_config_file, read_nnet
from nnet3tools.nnet.nnet import Nnet
from support.configs import in_a_row
from support.programs import run

PROGRAM = "nnet3-xconfig-to-configs"

PLAIN = """input name=input dim=4
relu-batchnorm-layer name=a dim=6 input=Append(-2,1)  # spliced
output-layer name=output dim=3
"""

LDA = """input name=ivector dim=2
input name=input dim=4
fixed-affine-layer affine-transform-file=lda.mat name=lda \
input=Append(-1,0,1,ReplaceIndex(ivector, t, 0))
relu-layer name=a dim=6 input=Append(-3,0,3)
output-layer name=output dim=3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def convert(text: str, *words: str) -> int:
    Path("net.xconfig").write_text(text)
    return run(PROGRAM, "--xconfig-file=net.xconfig", "--config-dir=cfg", *words)


def lines(name: str) -> list[str]:
    text = Path("cfg", name).read_text()
    assert text.startswith(f"# This file was created by the command:\n# {PROGRAM} --xconfig-file=")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def written() -> list[str]:
    return sorted(path.name for path in Path("cfg").iterdir())


def test_a_network_without_lda(folder: Path) -> None:
    assert convert(PLAIN) == 0
    assert written() == [
        *["final.config", "ref.config", "ref.raw", "vars", "xconfig"],
        *["xconfig.expanded.1", "xconfig.expanded.2"],
    ]
    expected = in_a_row("""input dim=4
a.affine NaturalGradientAffineComponent input-dim=8 output-dim=6 max-change=0.75 \
input=Append(Offset(input, -2), Offset(input, 1))
a.relu RectifiedLinearComponent dim=6 self-repair-scale=1e-05
a.batchnorm BatchNormComponent dim=6 target-rms=1.0
output.affine NaturalGradientAffineComponent input-dim=6 output-dim=3 max-change=1.5 \
param-stddev=0.0 bias-stddev=0.0
output.log-softmax LogSoftmaxComponent dim=3
output objective=linear""")
    assert lines("final.config") == lines("ref.config") == expected.strip().splitlines()
    assert Path("cfg/vars").read_text() == "model_left_context=2\nmodel_right_context=1\n"
    assert lines("xconfig") == PLAIN.splitlines()
    normal = [line for line in lines("xconfig.expanded.2") if "name=a " in line]
    assert normal[0].startswith("relu-batchnorm-layer name=a add-log-stddev=False bias-stddev= ")
    assert "input=Append(Offset(input, -2), Offset(input, 1)) " in normal[0]
    assert "input=[-1]" in lines("xconfig.expanded.1")[2]
    assert read_nnet("cfg/ref.raw").output_dim("output") == 3


def test_the_expanded_file_means_the_same(folder: Path) -> None:
    convert(LDA)
    configs = [lines(f"{name}.config") for name in ("init", "ref", "final")]
    assert convert("\n".join(lines("xconfig.expanded.2"))) == 0
    assert configs == [lines(f"{name}.config") for name in ("init", "ref", "final")]


def test_files_depend_on_nothing_but_the_input(folder: Path) -> None:
    convert(LDA)
    first = {path.name: path.read_bytes() for path in Path("cfg").iterdir()}
    convert(LDA)
    assert first == {path.name: path.read_bytes() for path in Path("cfg").iterdir()}


def test_values_may_be_words_of_their_own(folder: Path) -> None:
    Path("net.xconfig").write_text(PLAIN)
    words = ["--xconfig-file", "net.xconfig", "--print-args=false", "--config-dir", "cfg/"]
    assert run(PROGRAM, *words) == 0
    assert Path("cfg/final.config").exists()


def test_lda(folder: Path) -> None:
    assert convert(LDA) == 0
    spliced = "Append(Offset(input, -1), input, Offset(input, 1), ReplaceIndex(ivector, t, 0))"
    assert lines("init.config") == [
        "input-node name=ivector dim=2",
        "input-node name=input dim=4",
        f"output-node name=output input={spliced}",
    ]
    node = f"component-node name=lda component=lda input={spliced}"
    final, ref = lines("final.config"), lines("ref.config")
    assert final[2:4] == ["component name=lda type=FixedAffineComponent matrix=lda.mat", node]
    dims = "input-dim=14 output-dim=14"
    assert ref[2:4] == [f"component name=lda type=FixedAffineComponent {dims}", node]
    assert final[4:] == ref[4:]
    assert Path("cfg/vars").read_text() == "model_left_context=4\nmodel_right_context=4\n"
    assert read_nnet("cfg/init.raw").output_dim("output") == 14
    assert convert(PLAIN) == 0
    assert not Path("cfg/init.config").exists()


def test_delays(folder: Path, capfd: pytest.CaptureFixture) -> None:
    delayed = LDA.replace("lda.mat", "lda.mat delay=5").replace("dim=3\n", "dim=3 output-delay=5\n")
    assert convert(delayed) == 0
    assert lines("init.config")[-1] == "output-node name=output input=Offset(lda.delayed, 5)"
    assert lines("final.config")[-1].split()[2] == "input=Offset(output.log-softmax,"
    assert "WARNING" not in capfd.readouterr().err
    undelayed = PLAIN.replace("input=Append(-2,1)", "input=lda").replace(
        "relu-batchnorm-layer",
        "fixed-affine-layer name=lda input=Append(-2,0,1) affine-transform-file=lda.mat\n"
        "relu-batchnorm-layer",
    )
    assert convert(undelayed.replace("dim=3\n", "dim=3 output-delay=5\n")) == 0
    error = capfd.readouterr().err
    assert "needs more context (2 frames before, 1 after) than the network (0, 6)" in error


def test_idct_writes_its_matrix(folder: Path) -> None:
    text = "input name=input dim=5\nidct-layer name=idct cepstral-lifter=22 include-in-init=true "
    text += "affine-transform-file=cfg/idct.mat\n" + LDA.partition("dim=4\n")[2]
    assert convert(text.replace(",ReplaceIndex(ivector, t, 0)", "")) == 0
    line = "component name=idct type=FixedAffineComponent matrix=cfg/idct.mat"
    assert line in lines("init.config")
    assert line in lines("final.config")
    rows = Path("cfg/idct.mat").read_text().strip("[] ").split("\n")
    matrix = np.array([row.split() for row in rows], float)
    assert matrix.shape == (5, 6)
    assert not matrix[:, 5].any()
    # without the lifter its rows and columns are orthonormal
    k = np.arange(5)
    lifter = 1 + 11 * np.sin(np.pi * k / 22)
    assert np.allclose((matrix[:, :5] * lifter).T @ (matrix[:, :5] * lifter), np.eye(5))
    bins = (np.arange(5) + 0.5)[:, None]
    assert np.allclose(
        (matrix[:, 1] * lifter[1])[:, None], np.sqrt(2 / 5) * np.cos(np.pi / 5 * bins)
    )


def test_layers_on_an_existing_model(folder: Path) -> None:
    convert(PLAIN)
    Path("cfg/ref.raw").rename("old.raw")
    added = """relu-layer name=b dim=5 input=Append(a.batchnorm, a.relu@-1)
output-layer name=output dim=4 input=Append(-1, b)
"""
    assert convert(added, "--existing-model=old.raw") == 0
    assert lines("final.config")[1] == (
        "component-node name=b.affine component=b.affine "
        "input=Append(a.batchnorm, Offset(a.relu, -1))"
    )
    made = read_nnet("cfg/ref.raw")
    assert made.output_dim("output") == 4
    assert made.node_index("a.affine") >= 0
    assert Path("cfg/vars").read_text() == "model_left_context=4\nmodel_right_context=1\n"
    # nodes of the model are not the layer before
    assert convert("relu-layer name=b dim=5\n", "--existing-model=old.raw") == 255


def test_a_network_whose_output_has_another_name(
    folder: Path, capfd: pytest.CaptureFixture
) -> None:
    assert convert(PLAIN) == 0
    text = PLAIN.replace("name=output", "name=output-0")
    assert convert(text) == 0
    error = capfd.readouterr().err
    assert "WARNING" in error
    assert "no context, and no file vars" in error
    assert not Path("cfg/vars").exists()
    assert convert(text, "--nnet-edits=rename-node old-name=output-0 new-name=output") == 0
    assert Path("cfg/vars").read_text() == "model_left_context=2\nmodel_right_context=1\n"
    assert read_nnet("cfg/ref.raw").output_dim("output-0") == 3


def test_edits_that_cannot_be_obeyed(folder: Path, capfd: pytest.CaptureFixture) -> None:
    assert convert(PLAIN, "--nnet-edits=rename-node old-name=x new-name=y") == 255
    assert "rename-node old-name=x new-name=y" in capfd.readouterr().err.splitlines()[-1]
    assert not Path("cfg").exists()


def test_nothing_is_lost_when_something_is_wrong(
    folder: Path, capfd: pytest.CaptureFixture
) -> None:
    convert(PLAIN)
    before = {path.name: path.read_bytes() for path in Path("cfg").iterdir()}
    capfd.readouterr()
    for change, message in {
        "max-change=-1": "net.xconfig:2: max-change must not be negative, in config line "
        "'component name=a.affine ",
        "dims=3": "net.xconfig:2: relu-batchnorm-layer has no option 'dims' (did you mean 'dim'?)",
    }.items():
        assert convert(PLAIN.replace("dim=6", f"dim=6 {change}")) == 255
        assert before == {path.name: path.read_bytes() for path in Path("cfg").iterdir()}
        error = capfd.readouterr().err.strip().splitlines()
        assert error[-1].startswith("ERROR (")
        assert message in error[-1]
        assert len(error) == 2  # with the command line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config-dir=cfg"], "option --xconfig-file is required"),
        (["--xconfig-file=net.xconfig"], "option --config-dir is required"),
        (["--xconfig-file=missing", "--config-dir=cfg"], "cannot open 'missing' for reading"),
        (["--xconfig-file=net.xconfig", "--config-dir=net.xconfig"], "cannot make folder"),
        (["--xconfig-file"], "Invalid option --xconfig-file"),
        (
            ["--xconfig-file=net.xconfig", "--config-dir=cfg", "--existing-model=net.xconfig"],
            "net.xconfig: expected a network",
        ),
    ],
)
def test_wrong_command_lines(
    folder: Path, words: list[str], message: str, capfd: pytest.CaptureFixture
) -> None:
    Path("net.xconfig").write_text(PLAIN)
    assert run(PROGRAM, *words) == 255
    assert message in capfd.readouterr().err


def test_final_config_makes_the_network_once_its_matrix_is_there(folder: Path) -> None:
    convert(LDA)
    Path("lda.mat").write_text("[ " + "\n".join(["1 " * 15] * 14) + " ]")
    nnet = Nnet()
    apply_config_file(nnet, "cfg/final.config")
    assert nnet.config_lines() == read_nnet("cfg/ref.raw").config_lines()
