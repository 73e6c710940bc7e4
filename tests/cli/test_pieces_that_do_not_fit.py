"""Files that do not match each other: one line names the file, and older outputs stay unchanged."""

import re
from pathlib import Path

import pytest

from nnet3tools.training.example import EXAMPLE
from nnet3tools.training.lda import LdaStats
from support.shell import Shell
from support.training_helpers import minibatch

KEPT = "what was there"


def refusal(shell: Shell, output: str, name: str, *words: str) -> str:
    """Run a program that must fail and not change `output`; returns its error line."""
    Path(output).write_text(KEPT)
    line = shell.error(name, *words)
    assert Path(output).read_text() == KEPT
    return line


def numbers(line: str) -> set[str]:
    """The integers in a line."""
    return set(re.findall(r"\b\d+\b", line))


# -- xconfig


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("relu-layer name=a dimm=10", ("dimm", "dim")),
        ("relu-layer name=a dim=10 input=inputt", ("inputt", "input")),
        ("relu-layer name=a dim=10 input=Append(input, b@-1)", ("b",)),
        ("relu-layr name=a dim=10", ("relu-layr", "relu-layer")),
        ("relu-layer name=a dim=ten", ("dim", "ten")),
    ],
)
def test_layers(shell: Shell, line: str, expected: tuple[str, ...]) -> None:
    Path("net.xconfig").write_text(
        f"input dim=4 name=input\n{line}\noutput-layer name=output dim=2\n"
    )
    Path("configs").mkdir()
    error = refusal(
        shell, "configs/final.config", "nnet3-xconfig-to-configs", "--xconfig-file=net.xconfig",
        "--config-dir=configs",
    )  # fmt: skip
    assert "net.xconfig:2" in error
    for word in expected:
        assert f"{word}" in error
    assert [path.name for path in Path("configs").iterdir()] == ["final.config"]


# -- LDA


def write_stats(name: str, num_classes: int, dim: int) -> None:
    stats = LdaStats.empty(num_classes, dim)
    stats.save(name)


def test_statistics_of_another_dimension(shell: Shell) -> None:
    write_stats("1.acc", 3, 5)
    write_stats("2.acc", 3, 6)
    line = refusal(shell, "sum.acc", "sum-lda-accs", "sum.acc", "1.acc", "2.acc")
    assert "2.acc" in line
    assert {"5", "6"} <= numbers(line)


def test_a_transform_of_more_dimensions_than_the_statistics_have(shell: Shell) -> None:
    write_stats("1.acc", 3, 5)
    line = refusal(shell, "lda.mat", "nnet-get-feature-transform", "--dim=6", "lda.mat", "1.acc")
    assert {"5", "6"} <= numbers(line)


# -- combination


CONFIG = """input-node name=input dim=3
component name=a type=NaturalGradientAffineComponent input-dim=3 output-dim={}
component-node name=a component=a input=input
output-node name=output input={}
"""


def write_network(shell: Shell, name: str, dim: int, output: str = "a") -> None:
    Path("c").write_text(CONFIG.format(dim, output))
    shell("nnet3-init", "c", name)


@pytest.mark.parametrize("other", ["dimension", "nodes"])
def test_models_of_another_structure(shell: Shell, other: str) -> None:
    write_network(shell, "1.raw", 5)
    if other == "dimension":
        write_network(shell, "2.raw", 6)
    else:
        Path("2.config").write_text(
            CONFIG.format(5, "b").replace(
                "output-node",
                "component name=b type=NaturalGradientAffineComponent input-dim=5 output-dim=5\n"
                "component-node name=b component=b input=a\noutput-node",
            )
        )
        shell("nnet3-init", "2.config", "2.raw")
    shell.write("egs", EXAMPLE, {"e": minibatch()})
    for name, words in (
        ("nnet3-combine", ("1.raw", "2.raw", "ark:egs", "out.raw")),
        ("nnet3-average", ("1.raw", "2.raw", "out.raw")),
    ):
        assert "2.raw" in refusal(shell, "out.raw", name, *words), name


# -- priors


def test_priors_of_another_size(shell: Shell) -> None:
    Path("topo").write_text(
        "<Topology> <TopologyEntry> <ForPhones> 1 </ForPhones> <State> 0 <PdfClass> 0 "
        "<Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State> </TopologyEntry> "
        "</Topology> "
    )
    Path("tree").write_text(
        "ContextDependency 1 0 ToPdf TE 0 2 ( NULL TE -1 1 ( CE 4 ) ) EndContextDependency "
    )
    write_network(shell, "0.raw", 5)
    shell("nnet3-am-init", "tree", "topo", "0.raw", "0.mdl")
    for size in (4, 6):
        Path("vec").write_text(" [ " + "0.2 " * size + "]\n")
        line = refusal(shell, "out.mdl", "nnet3-am-adjust-priors", "0.mdl", "vec", "out.mdl")
        assert {str(size), "5"} <= numbers(line)
