"""Chain examples of several languages, and with a model's posteriors added (chain2, LWF)."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools.chain.example import CHAIN_EXAMPLE, NnetChainExample, NnetChainSupervision
from nnet3tools.chain.languages import language_of
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.chain.supervision import Supervision
from nnet3tools.fst.files import save_fst
from nnet3tools.fst.fst import Fst
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import NnetIo
from support.chain_helpers import DEN, FRAMES, NETWORK, PDFS, network
from support.shell import Shell

OTHER_DEN = Fst.from_lists(
    0, [0.0, 0.0], [[(1, 1, 0.1, 1), (2, 2, 0.9, 0)], [(3, 3, 0.4, 0), (4, 4, 0.6, 1)]]
)
LEAK = "--leaky-hmm-coefficient=0.1"
ONES = np.ones(FRAMES, np.float32)
XENT = "--xent-regularize=0.1"


def chunk(seed: int) -> NnetChainExample:
    """One sequence, with a linear supervision."""
    rng = np.random.default_rng(seed)
    t = np.arange(-1, 3 * FRAMES)
    indexes = np.stack([0 * t, t, 0 * t], axis=1).astype(np.int32)
    features = rng.normal(size=(len(t), 3)).astype(np.float32)
    labels = Fst.linear(rng.integers(1, PDFS + 1, FRAMES).tolist())
    target = Supervision(1.0, 1, FRAMES, PDFS, labels)
    output = NnetChainSupervision("output", output_indexes(1, FRAMES, 0, 3), target, ONES)
    return NnetChainExample([NnetIo("input", indexes, features)], [output])


def network_of(*languages: str) -> Nnet:
    """The outputs of each language lead to the same components."""
    nodes = "".join(
        f"output-node name=output-{name} input=b\noutput-node name=output-{name}-xent input=s\n"
        for name in languages
    )
    lines = [x for x in NETWORK.splitlines() if not x.startswith("output-node")]
    plain, nnet = network(), Nnet.from_config(parse_config_lines("\n".join(lines) + "\n" + nodes))
    nnet.components = plain.components
    return nnet


@pytest.fixture
def shell(tmp_path: Path, monkeypatch, capfd) -> Shell:
    """Models, denominator FSTs of two languages, and examples of both, merged."""
    monkeypatch.chdir(tmp_path)
    Path("misc").mkdir()
    for name, fst in (("default", DEN), ("one", DEN), ("two", OTHER_DEN)):
        save_fst(f"misc/{name}.den.fst", fst)
    write_nnet(network(), "plain.raw")
    write_nnet(network_of("default"), "default.raw")
    write_nnet(network_of("one", "two"), "two.raw")
    found = Shell(tmp_path, capfd)
    chunks = [chunk(seed) for seed in range(8)]
    found.write("egs", CHAIN_EXAMPLE, {f"u{i}": c for i, c in enumerate(chunks)})
    keys = [f"u{i}?lang={'one' if i % 2 else 'two'}" for i in range(8)]
    found.write("both", CHAIN_EXAMPLE, dict(zip(keys, chunks, strict=True)))
    found("nnet3-chain-merge-egs", "--minibatch-size=4", "ark:egs", "ark:merged")
    options = ("--multilingual-eg=true", "--minibatch-size=4")
    found("nnet3-chain-merge-egs", *options, "ark:both", "ark:merged-both")
    return found


def parameters(model: str) -> np.ndarray:
    parts = [getattr(c, "linear_params", np.zeros(0)) for c in read_nnet(model).components]
    return np.concatenate([part.ravel() for part in parts])


@pytest.mark.parametrize(
    ("key", "language"),
    [("u", ""), ("u?lang=a", "a"), ("u?w=2&lang=b_1", "b_1"), ("u?slang=c", ""), ("u?lang=", "")],
)
def test_a_key_names_its_language(key, language):
    assert language_of(key) == language


def test_one_language_trains_as_nnet3_chain_train(shell):
    options = (LEAK, XENT, "--use-gpu=no")
    shell("nnet3-chain-train", *options, "plain.raw", "misc/default.den.fst", "ark:merged", "1.raw")
    log = shell("nnet3-chain-train2", *options, "default.raw", "misc", "ark:merged", "2.raw")
    assert "for 'output-default' is" in log
    np.testing.assert_array_equal(parameters("1.raw"), parameters("2.raw"))


def test_each_language_has_its_graph_and_outputs(shell):
    options = (LEAK, XENT, "--use-gpu=no")
    log = shell("nnet3-chain-train2", *options, "two.raw", "misc", "ark:merged-both", "2.raw")
    for name in ("output-one", "output-one-xent", "output-two", "output-two-xent"):
        assert f"function for '{name}' is" in log
    assert (parameters("2.raw") != parameters("two.raw")).any()
    alone = []
    for i, language in enumerate(("two", "one")):
        shell.write("own", CHAIN_EXAMPLE, {f"u{j}": chunk(j) for j in range(i, 8, 2)})
        den = f"misc/{language}.den.fst"
        log = shell("nnet3-chain-compute-prob", LEAK, "plain.raw", den, "ark:own")
        alone.append(float(log.split("'output' is ")[1].split()[0]))
    assert abs(alone[0] - alone[1]) > 1e-2
    words = ("misc", "two.raw", "two.raw", "ark:merged-both", "best.raw")
    log = shell("nnet3-chain-combine2", LEAK, "--use-gpu=no", *words)
    together = float(log.split("using the last model is ")[1].split()[0])
    np.testing.assert_allclose(together, np.mean(alone), rtol=1e-5)
    np.testing.assert_array_equal(parameters("best.raw"), parameters("two.raw"))


@pytest.mark.parametrize(
    ("model", "folder", "message"),
    [
        ("two.raw", "misc", "output named 'output-default', but no such output node"),
        ("default.raw", "nowhere", "cannot open 'nowhere/default.den.fst'"),
    ],
)
def test_a_language_that_is_not_there_is_named(shell, model, folder, message):
    for words in (("train2", model, folder), ("combine2", folder, model)):
        command = (f"nnet3-chain-{words[0]}", "--use-gpu=no", *words[1:])
        assert message in shell.error(*command, "ark:merged", "x.raw")
        assert not Path("x.raw").exists()


def added(shell: Shell, *options: str) -> tuple[np.ndarray, str]:
    """The rows that are added to the first example, and the log."""
    words = ("plain.raw", "misc/default.den.fst", "ark:egs", "ark:with")
    log = shell("nnet3-chain-add-post-to-egs", "--use-gpu=no", *options, *words)
    example = shell.read("with", CHAIN_EXAMPLE)["u0"]
    assert [io.name for io in example.inputs] == ["input", "__LWF-posteriors"]
    np.testing.assert_array_equal(example.inputs[1].indexes[:, 1], 3 * np.arange(FRAMES))
    return to_dense(example.inputs[1].features), log


def test_outputs_are_added_to_examples(shell):
    rows, log = added(shell, "--type=raw", "--apply-exp=false")
    assert "Read 8 neural-network training examples, wrote 8" in log
    first, affine = (read_nnet("plain.raw").component(i) for i in (0, 2))
    features = chunk(0).inputs[0].features
    spliced = np.stack([features[3 * i : 3 * i + 3].ravel() for i in range(FRAMES)])
    hidden = np.maximum(spliced @ first.linear_params.T + first.bias_params, 0)
    expected = hidden @ affine.linear_params.T + affine.bias_params
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(added(shell)[0], np.exp(expected), rtol=1e-5)


def test_posteriors_of_the_denominator_are_added_to_examples(shell):
    rows, _ = added(shell, "--type=den", LEAK)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-3)
    clipped, _ = added(shell, "--type=den", LEAK, "--clip-threshold=0.2")
    np.testing.assert_array_equal(clipped, np.where(rows < 0.2, 0, rows))
    assert 0 < np.count_nonzero(clipped) < clipped.size
    # Training reads them.
    shell("nnet3-chain-merge-egs", "--minibatch-size=4", "ark:with", "ark:merged-with")
    options = (LEAK, "--use-gpu=no", "--lwf-scale=0.5")
    words = ("plain.raw", "misc/default.den.fst", "ark:merged-with", "x.raw")
    shell("nnet3-chain-train", *options, *words)


def test_examples_that_no_posteriors_can_be_added_to(shell):
    words = ("plain.raw", "misc/default.den.fst", "ark:merged", "ark:x")
    line = shell.error("nnet3-chain-add-post-to-egs", "--use-gpu=no", *words)
    assert "example 'merged-0-4': expected one sequence" in line
    assert not Path("x").exists()
    assert "--type=both: expected raw or den" in shell.error(
        "nnet3-chain-add-post-to-egs", "--type=both", *words
    )
    added(shell)
    words = ("plain.raw", "misc/default.den.fst", "ark:with", "ark:x")
    assert "has an input '__LWF-posteriors' already" in shell.error(
        "nnet3-chain-add-post-to-egs", "--use-gpu=no", *words
    )
