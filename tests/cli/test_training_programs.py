"""Programs that training scripts call besides nnet3-train, as commands."""

import re
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.holders import GENERAL_MATRIX, INT32_VECTOR, MATRIX, POSTERIOR, VECTOR
from nnet3tools.io.posterior import Posterior
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.arithmetic import set_test_modes, vectorize
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.training.diagnostics import NnetComputeProb
from nnet3tools.training.diagnostics_options import ComputeProbOptions
from nnet3tools.training.example import EXAMPLE
from nnet3tools.training.lda import LdaStats
from support.configs import in_a_row
from support.shell import Shell
from support.training_helpers import example, minibatch, network

TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State>
</TopologyEntry> </Topology>
"""
TREE = (
    "ContextDependency 1 0 ToPdf TE 0 3 ( NULL TE -1 1 ( CE 0 ) TE -1 1 ( CE 1 ) ) "
    "EndContextDependency "
)
CONFIG = in_a_row("""input dim=3
a AffineComponent input-dim=3 output-dim={}
s LogSoftmaxComponent dim={}""")


# -- nnet3-combine


def models(shell: Shell, count: int) -> tuple[list[str], str]:
    """Write networks and examples; returns the networks' files and the examples' rspecifier."""
    names = [f"{i}.raw" for i in range(count)]
    for i, name in enumerate(names):
        write_nnet(network(seed=i), name)
    return names, shell.write("egs", EXAMPLE, {f"e{i}": minibatch(seed=i) for i in range(3)})


def objective(nnet) -> float:
    set_test_modes(nnet, batchnorm=False)
    prob = NnetComputeProb(ComputeProbOptions(), nnet)
    for i in range(3):
        prob.compute(minibatch(seed=i))
    return prob.totals["output"].objective / prob.totals["output"].weight


def mean_of(names: list[str]) -> np.ndarray:
    return np.mean([vectorize(read_nnet(name)) for name in names], axis=0)


def test_combine_takes_the_best_average(shell: Shell) -> None:
    from nnet3tools.nnet.arithmetic import unvectorize

    names, egs = models(shell, 4)
    log = shell("nnet3-combine", "--use-gpu=no", *names, egs, "out.raw")
    objectives = []
    for count in range(1, 5):
        nnet = read_nnet(names[0])
        unvectorize(nnet, mean_of(names[:count]))
        objectives.append(objective(nnet))
    best = int(np.argmax(objectives)) + 1
    np.testing.assert_allclose(
        vectorize(read_nnet("out.raw")), mean_of(names[:best]), rtol=1e-5, atol=1e-6
    )
    shown = [float(x) for x in re.findall(r"models, objective function is (\S+)", log)]
    np.testing.assert_allclose(shown, objectives[1:], rtol=1e-4)
    assert f"Combining {best} nnets, objective function changed from " in log
    assert "Recomputing stats on nnet" in log
    batchnorm = read_nnet("out.raw").component(2)
    assert batchnorm.count == 48


def test_combine_spares_evaluations(shell: Shell) -> None:
    names, egs = models(shell, 5)
    option = "--max-objective-evaluations=2"
    log = shell("nnet3-combine", "--use-gpu=no", option, *names, egs, "out.raw")
    assert re.findall(r"Combining last (\d+) models", log) == ["4", "5"]


def test_combine_refuses_a_model_of_another_structure(shell: Shell) -> None:
    names, egs = models(shell, 2)
    Path("net.config").write_text(CONFIG.format(5, 5))
    shell("nnet3-init", "net.config", "other.raw")
    Path("out.raw").write_text("kept")
    error = shell.error("nnet3-combine", "--use-gpu=no", *names, "other.raw", egs, "out.raw")
    assert "other.raw: the networks do not match" in error
    assert Path("out.raw").read_text() == "kept"
    assert "no examples" in shell.error(
        "nnet3-combine", "--use-gpu=no", *names, shell.write("e", EXAMPLE, {}), "o", status=1
    )


# -- LDA


def test_lda_from_examples_to_transform(shell: Shell) -> None:
    write_nnet(network(), "0.raw")
    egs = shell.write("egs", EXAMPLE, {f"e{i}": example(seed=i) for i in range(8)})
    log = shell("nnet3-acc-lda-stats", "0.raw", egs, "1.acc")
    assert "Accumulated stats, soft frame count = 32.  Wrote to 1.acc" in log
    shell("nnet3-acc-lda-stats", "--binary=false", "0.raw", egs, "2.acc")
    shell("sum-lda-accs", "sum.acc", "1.acc", "2.acc")
    twice = 2 * LdaStats.load("1.acc").first
    np.testing.assert_allclose(LdaStats.load("sum.acc").first, twice, rtol=1e-6)
    shell(
        "nnet-get-feature-transform", "--dim=3", "--write-cholesky=c", "--write-within-covar=w",
        "--binary=false", "lda.mat", "sum.acc",
    )  # fmt: skip
    shell("nnet-get-feature-transform", "--dim=3", "lda2.mat", "1.acc", "2.acc")
    shell("copy-matrix", "lda2.mat", "lda3.mat")
    assert Path("lda.mat").read_text().count("\n") == 4
    assert Path("c").read_text().startswith("[\n")
    assert Path("lda3.mat").read_bytes() == Path("lda2.mat").read_bytes()


def test_lda_of_another_dimension_is_refused(shell: Shell) -> None:
    LdaStats.empty(4, 3).save("a")
    LdaStats.empty(4, 5).save("b", binary=False)
    Path("out").write_text("kept")
    for name in ("sum-lda-accs", "nnet-get-feature-transform"):
        error = shell.error(name, "out", "a", "b")
        assert "b after a: LDA statistics of 4 classes in 5 dimensions" in error
    assert Path("out").read_text() == "kept"


# -- nnet3-am-train-transitions


@pytest.fixture
def model(shell: Shell) -> str:
    """The file of an acoustic model of two phones and two pdfs."""
    Path("topo").write_text(TOPOLOGY)
    Path("tree").write_text(TREE)
    Path("net.config").write_text(CONFIG.format(2, 2))
    shell("nnet3-init", "net.config", "0.raw")
    shell("nnet3-am-init", "tree", "topo", "0.raw", "0.mdl")
    return "0.mdl"


def test_transitions_and_priors(shell: Shell, model: str) -> None:
    ids = np.array([1, 1, 1, 2, 3, 3, 4, 4] * 3, np.int32)
    alignments = shell.write("ali", INT32_VECTOR, {"u": ids, "v": ids})
    log = shell("nnet3-am-train-transitions", model, alignments, "1.mdl")
    assert "Accumulated transition stats from 2 utterances." in log
    assert "log-like improvement per frame over 48 frames." in log
    found = AmNnet.load("1.mdl")
    np.testing.assert_allclose(
        np.exp(found.transition_model.log_probs[1:]), [0.75, 0.25, 0.5, 0.5], rtol=1e-6
    )
    np.testing.assert_allclose(found.priors, [0.5, 0.5])
    shell("nnet3-am-train-transitions", "--set-priors=false", model, alignments, "2.mdl")
    assert len(AmNnet.load("2.mdl").priors) == 0


def test_priors_have_a_floor(shell: Shell, model: str) -> None:
    alignments = shell.write("ali", INT32_VECTOR, {"u": np.array([3, 4, 3], np.int32)})
    shell("nnet3-am-train-transitions", "--prior-floor=0.1", model, alignments, "1.mdl")
    np.testing.assert_allclose(AmNnet.load("1.mdl").priors, [0.1 / 1.1, 1 / 1.1], rtol=1e-6)


def test_alignments_of_another_model(shell: Shell, model: str) -> None:
    alignments = shell.write("ali", INT32_VECTOR, {"u": np.array([1, 5], np.int32)})
    error = shell.error("nnet3-am-train-transitions", model, alignments, "1.mdl")
    assert (
        "ark:ali: utterance u: transition id 5 in place 1: the model has ids from 1 to 4" in error
    )
    assert not Path("1.mdl").exists()
    empty = shell.write("none", INT32_VECTOR, {})
    assert "nothing to set priors" in shell.error(
        "nnet3-am-train-transitions", model, empty, "1.mdl"
    )
    Path("net.config").write_text(CONFIG.format(3, 3))
    shell("nnet3-init", "net.config", "0.raw")
    shell("nnet3-am-init", "tree", "topo", "0.raw", "3.mdl")
    good = shell.write("ali", INT32_VECTOR, {"u": np.array([1, 3], np.int32)})
    error = shell.error("nnet3-am-train-transitions", "3.mdl", good, "1.mdl")
    assert "the transition model has 2 pdfs, the output dimension 3" in error


# -- examples


def test_whole_matrices_become_examples(shell: Shell) -> None:
    rng = np.random.default_rng(0)
    images = {key: rng.normal(size=(4, 3)).astype(np.float32) for key in "abc"}
    feats = shell.write("feats", MATRIX, images)
    posts = {key: Posterior.from_counts([1], [i], [0.5]) for i, key in enumerate("ca")}
    post = shell.write("post", POSTERIOR, posts)
    shell("post-to-smat", "--dim=4", post, "ark:labels")
    log = shell("nnet3-get-egs-simple", f"input={feats}", "output=ark:labels", "ark:egs")
    assert "Could not find input for key b for io-name=output" in log
    assert "1 utterances had errors and could not be processed." in log
    found = shell.read("egs", EXAMPLE)
    assert list(found) == ["a", "c"]
    features, label = found["a"].io
    np.testing.assert_array_equal(features.features, images["a"])
    np.testing.assert_array_equal(features.indexes, [[0, t, 0] for t in range(4)])
    assert isinstance(label.features, SparseMatrix)
    np.testing.assert_array_equal(to_dense(label.features), [[0, 0.5, 0, 0]])
    assert "expecting name=rspecifier" in shell.error("nnet3-get-egs-simple", feats, "ark:x")
    assert "no example" in shell.error(
        "nnet3-get-egs-simple", f"input={feats}", "output=ark:/dev/null", "ark:x", status=1
    )
    assert "not below 1" in shell.error("post-to-smat", "--dim=1", post, "ark:x")
    assert "--dim option must be specified" in shell.error("post-to-smat", post, "ark:x")


def test_images_twice_flipped_are_the_same(shell: Shell) -> None:
    eg = example(num_frames=3, dim=6)
    egs = shell.write("egs", EXAMPLE, {"a": eg, "b": eg})
    flip = ("nnet3-egs-augment-image", "--num-channels=2", "--horizontal-flip-prob=1.0")
    assert "Perturbed 2 neural-network training images." in shell(*flip, egs, "ark:1.egs")
    shell(*flip, "ark:1.egs", "ark:2.egs")
    once, twice = (shell.read(f"{i}.egs", EXAMPLE)["b"].io[0].features for i in (1, 2))
    np.testing.assert_allclose(once, eg.io[0].features[::-1], atol=1e-6)
    np.testing.assert_allclose(twice, eg.io[0].features, atol=1e-6)
    error = shell.error("nnet3-egs-augment-image", "--fill-mode=x", egs, "ark:3.egs")
    assert "'nearest' or 'reflect', got: x" in error
    error = shell.error("nnet3-egs-augment-image", "--num-channels=4", egs, "ark:3.egs")
    assert "ark:egs: example 'a': an image of 6 columns" in error
    assert not Path("3.egs").exists()


# -- x-vectors and matrices


def test_batched_vectors(shell: Shell) -> None:
    Path("net.config").write_text(CONFIG.format(2, 2))
    shell("nnet3-init", "net.config", "0.raw")
    feats = shell.write("f", MATRIX, {k: np.ones((9, 3), np.float32) for k in "abc"})
    program = "nnet3-xvector-compute-batched"
    log = shell(program, "--chunk-size=4", "--batch-size=5", "0.raw", feats, "ark:x")
    assert "Left/right context is 0, 0" in log
    assert "Read 3 utterances, wrote 3 xvectors." in log
    vectors = shell.read("x", VECTOR)
    assert list(vectors) == ["a", "b", "c"]
    np.testing.assert_allclose(vectors["a"], vectors["c"], rtol=1e-6)
    assert "--batch-size=0" in shell.error(program, "--batch-size=0", "0.raw", feats, "ark:y")


def test_copy_matrix(shell: Shell) -> None:
    matrix = np.array([[0.5, 2, 3], [1, 4, 0]], np.float32)
    table = shell.write("m", MATRIX, {"a": matrix, "b": matrix[:1]})
    assert "Copied 2 matrices." in shell("copy-matrix", "--scale=2", table, "ark:scaled")
    np.testing.assert_array_equal(shell.read("scaled", MATRIX)["a"], 2 * matrix)
    for option, expected in {
        "--apply-exp": np.exp(matrix),
        "--apply-power=2": matrix**2,
        "--apply-softmax-per-row": np.exp(matrix) / np.exp(matrix).sum(axis=1, keepdims=True),
        "--apply-log": np.log(np.maximum(matrix, 1e-20)),
    }.items():
        shell("copy-matrix", option, table, "ark:out")
        np.testing.assert_allclose(shell.read("out", MATRIX)["a"], expected, rtol=1e-5)
    shell("copy-matrix", "--binary=false", "m:2[0:1,1:2]", "one.mat")
    assert Path("one.mat").read_text() == " [\n  2 3 \n  4 0 ]\n"
    assert "Cannot mix archives" in shell.error("copy-matrix", table, "one.mat")
    assert "Only one of" in shell.error("copy-matrix", "--apply-log", "--apply-exp", "m:2", "x")
    shell("copy-matrix", shell.write("none", GENERAL_MATRIX, {}), "ark:o", status=1)
