"""Training with compiled kernels: NumPy's model but for rounding, the same bytes each time."""

import numpy as np
import pytest

from nnet3tools.io.table import TableWriter
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.tensor.cpu import choice
from nnet3tools.training.example import EXAMPLE
from support.native_kernels import needs_compiler
from support.training_helpers import minibatch, network

pytestmark = needs_compiler


@pytest.fixture
def train(shell, tmp_path, monkeypatch):
    """Trains over eight minibatches with a kind of kernels; the model's bytes and parameters."""
    monkeypatch.setenv("NNET3TOOLS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(choice, "_chosen", None)
    with TableWriter("ark:egs", EXAMPLE) as writer:
        for seed in range(8):
            writer.write(f"utt{seed}", minibatch(8, seed=seed))
    write_nnet(network(), "0.raw")

    def run(kind: str, *words: str):
        shell("nnet3-train", f"--cpu-kernels={kind}", *words, "0.raw", "ark:egs", "1.raw")
        nnet = read_nnet("1.raw")
        affine = [c for c in nnet.components if hasattr(c, "linear_params")]
        weights = [np.asarray(c.linear_params).ravel() for c in affine]
        return (tmp_path / "1.raw").read_bytes(), np.concatenate(weights)

    return run


def test_both_kinds_train_the_same_model(train):
    (_, expected), (first, found) = train("numpy"), train("native")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert train("native")[0] == first


def test_programs_that_run_but_twice_compile_nothing(train, shell, tmp_path):
    words = "--cpu-kernels=native", "0.raw"
    shell("nnet3-subset-egs", "--n=2", "ark:egs", "ark:two")
    shell("nnet3-compute-prob", *words, "ark:two")
    assert not (tmp_path / "cache").exists()
    shell("nnet3-compute-prob", *words, "ark:egs")
    assert (tmp_path / "cache").exists()


def test_an_unknown_kind_is_an_error(shell):
    line = shell.error("nnet3-train", "--cpu-kernels=fast", "0.raw", "ark:egs", "1.raw")
    assert "--cpu-kernels=fast: expected native|numpy" in line
