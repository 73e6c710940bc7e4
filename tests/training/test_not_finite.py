"""NaN and infinity: what holds them is left out and counted; a model of them is not written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.chain.example import CHAIN_EXAMPLE
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.holders import GENERAL_MATRIX, MATRIX, POSTERIOR
from nnet3tools.io.posterior import Posterior
from nnet3tools.io.table import SequentialTableReader
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.training.example import EXAMPLE
from support.fuzz_chain_samples import make_chain_samples
from support.shell import Shell

CONFIG = """input-node name=input dim=4
component name=a type=AffineComponent input-dim=4 output-dim=3
component name=b type={} input-dim=3 output-dim=2
component-node name=a component=a input=input
component-node name=b component=b input=a
output-node name=output input=b objective=quadratic
"""
BAD = [np.nan, np.inf, -np.inf]


@pytest.fixture
def data(shell: Shell) -> dict[str, np.ndarray]:
    """Utterances of which u1 holds something that is no number; a model, examples."""
    rng = np.random.default_rng(6)
    features = {f"u{i}": rng.normal(size=(9, 4)).astype(np.float32) for i in range(3)}
    features["u1"][3, 2] = BAD[int(rng.integers(3))]
    shell.write("feats", MATRIX, features)
    shell.write("targets", GENERAL_MATRIX, {u: np.ones((9, 2), np.float32) for u in features})
    for kind, name in (("AffineComponent", "0.raw"), ("LinearComponent", "natural.raw")):
        Path("net.config").write_text(CONFIG.format(kind))
        shell("nnet3-init", "net.config", name)
    return features


def skipped(log: str) -> list[str]:
    return [line for line in log.splitlines() if line.endswith("(skipped)")]


def keys(name: str) -> list[str]:
    return [key for key, _ in SequentialTableReader(f"ark:{name}", EXAMPLE)]


def test_examples_are_made_of_the_others(shell: Shell, data: dict[str, np.ndarray]) -> None:
    shell("nnet3-get-egs-simple", "input=ark:feats", "output=ark:targets", "ark:egs")
    assert keys("egs") == ["u0", "u2"]
    assert "key 'u1': 'input': " in skipped(shell.log)[0]
    Path("ranges").write_text("u0 0 0 0 5 1\nu1 0 0 0 5 1\nu2 0 0 0 5 0\n")
    shell("nnet3-xvector-get-egs", "--num-pdfs=2", "ranges", "ark:feats", "ark:egs")
    assert [key[:2] for key in keys("egs")] == ["u0", "u2"]
    assert "features of utterance 'u1'" in skipped(shell.log)[0]
    assert "successfully processed 2 feature files, wrote 2 examples; 1 files" in shell.log


def test_bad_ivectors_leave_their_utterance_out(shell: Shell, data: dict[str, np.ndarray]) -> None:
    shell.write("ok", MATRIX, {u: np.zeros((9, 4), np.float32) for u in data})
    shell.write("ivectors", MATRIX, {u: m[:, :2] * 0 for u, m in data.items()} | {"u1": data["u1"]})
    ones = np.ones(9)
    posts = {u: Posterior.from_counts(ones.astype(int), np.zeros(9), ones) for u in data}
    shell.write("post", POSTERIOR, posts)
    ivectors = ("--online-ivectors=ark:ivectors", "--online-ivector-period=1")
    words = ("--num-pdfs=2", "--num-frames=3", *ivectors)
    shell("nnet3-get-egs", *words, "ark:ok", "ark:post", "ark:egs")
    assert {key[:2] for key in keys("egs")} == {"u0", "u2"}
    assert "i-vectors of utterance 'u1'" in skipped(shell.log)[0]


@pytest.fixture
def egs(shell: Shell, data: dict[str, np.ndarray]) -> list[tuple[str, object]]:
    """An example a minibatch, of which the second is no good."""
    finite = {u: np.nan_to_num(m, posinf=0, neginf=0) for u, m in data.items()}
    shell.write("feats", MATRIX, finite)
    shell("nnet3-get-egs-simple", "input=ark:feats", "output=ark:targets", "ark:egs")
    examples = list(SequentialTableReader("ark:egs", EXAMPLE))
    to_dense(examples[1][1].io[0].features)[3, 2] = np.nan
    shell.write("bad", EXAMPLE, dict(examples))
    shell.write("good", EXAMPLE, {k: e for k, e in examples if k != "u1"})
    return examples


@pytest.mark.parametrize(
    "words",
    [
        ("nnet3-train", "--use-gpu=no", "0.raw", "ark:{}", "{}.out"),
        ("nnet3-acc-lda-stats", "0.raw", "ark:{}", "{}.out"),
        ("nnet3-compute-from-egs", "--use-gpu=no", "0.raw", "ark:{}", "ark:{}.out"),
        ("nnet3-combine", "--use-gpu=no", "0.raw", "ark:{}", "{}.out"),
        ("nnet3-compute-prob", "0.raw", "ark:{}"),
    ],
    ids=lambda words: words[0],
)
def test_examples_are_left_out_and_counted(shell: Shell, egs: object, words: tuple) -> None:
    for name in ("good", "bad"):
        shell(*(word.format(name) for word in words))
    assert "example 'u1'" in skipped(shell.log)[0]
    assert "left out 1 of 3 examples, which hold NaN or infinity" in shell.log
    if Path("good.out").exists():
        assert Path("good.out").read_bytes() == Path("bad.out").read_bytes()


def exploding(scale: float) -> str:
    nnet = read_nnet("0.raw")
    for array in nnet.components[1].parameters().values():
        array *= np.float32(scale)
    write_nnet(nnet, "large.raw")
    return "large.raw"


@pytest.mark.parametrize("momentum", ["0", "0.5"])
def test_a_model_that_becomes_nan_is_not_written(shell: Shell, egs: object, momentum: str) -> None:
    """Without limits of the change: the gradient of 'a' overflows first in the second minibatch."""
    options = ("--use-gpu=no", "--max-param-change=0", f"--momentum={momentum}")
    Path("first").write_text("set-learning-rate name=* learning-rate=1e15\n")
    shell("nnet3-copy", "--edits-config=first", "0.raw", "fast.raw")
    error = shell.error("nnet3-train", *options, "fast.raw", "ark:good", "1.raw")
    assert "the trained model holds NaN or infinity in component" in error
    assert "it began at minibatch 2 with the change of component" in error
    assert not Path("1.raw").exists()


def test_natural_gradient_says_where_training_diverged(shell: Shell, egs: object) -> None:
    options = ("--use-gpu=no", "--max-param-change=0")
    Path("first").write_text("set-learning-rate name=* learning-rate=1e20\n")
    shell("nnet3-copy", "--edits-config=first", "natural.raw", "fast.raw")
    error = shell.error("nnet3-train", *options, "fast.raw", "ark:good", "1.raw")
    assert "in minibatch 2, component 'b': natural gradient met infinity or NaN" in error
    assert not Path("1.raw").exists()


def test_a_model_that_is_nan_is_not_trained(shell: Shell, egs: object) -> None:
    nnet = read_nnet("0.raw")
    nnet.components[0].linear_params[1, 2] = np.nan
    write_nnet(nnet, "nan.raw")
    error = shell.error("nnet3-train", "--use-gpu=no", "nan.raw", "ark:good", "1.raw")
    assert "nan.raw: component 'a' of the model: NaN or infinity among its numbers" in error


def test_changes_that_are_not_finite_are_left_out_as_in_kaldi(shell: Shell, egs: object) -> None:
    large = exploding(1e25)
    shell("nnet3-train", "--use-gpu=no", large, "ark:good", "1.raw")
    assert "Infinite parameter change, will not apply." in shell.log
    assert np.isfinite(read_nnet("1.raw").components[0].linear_params).all()


@pytest.mark.parametrize("bad", ["input", "weight", "derivative weights"])
def test_chain_examples_are_left_out_and_counted(shell: Shell, bad: str) -> None:
    make_chain_samples()
    (good, example), (key, other) = SequentialTableReader("ark:cegs.plain", CHAIN_EXAMPLE)
    output = other.outputs[0]
    if bad == "input":
        to_dense(other.inputs[0].features)[2, 1] = np.inf
    elif bad == "weight":
        output = replace(output, supervision=replace(output.supervision, weight=np.nan))
    else:
        output = replace(output, deriv_weights=np.array([1, np.nan, 1], np.float32))
    shell.write("bad", CHAIN_EXAMPLE, {good: example, key: replace(other, outputs=[output])})
    shell("nnet3-chain-train", "--use-gpu=no", "chain.raw", "fst.den", "ark:bad", "1.raw")
    assert f"example '{key}': " in skipped(shell.log)[0]
    assert bad in skipped(shell.log)[0]
    assert "left out 1 of 2 examples, which hold NaN or infinity" in shell.log
