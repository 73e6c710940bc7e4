"""With the cache of nnet3-compile --egs, nnet3-train compiles nothing and gives the same model."""

import numpy as np
import pytest

from nnet3tools.chain.example import CHAIN_EXAMPLE
from nnet3tools.cli.nnet3_compile import main as compile_main
from nnet3tools.cli.nnet3_train import main as train_main
from nnet3tools.io.table import TableWriter
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cache_files import load_cache
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.training.example import EXAMPLE, NnetExample, frames_io
from nnet3tools.training.merging import merge_examples
from support.chain_examples import chain_example

# No component here draws random numbers: Kaldi's compiler draws some too, so that which minibatches
# a component stores statistics of depends on whether anything was compiled.
CONFIG = """
input-node name=input dim=3
component name=a1 type=AffineComponent input-dim=9 output-dim=7
component name=b1 type=BatchNormComponent dim=7
component name=a2 type=AffineComponent input-dim=7 output-dim=2
component-node name=a1 component=a1 input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=b1 component=b1 input=a1
component-node name=a2 component=a2 input=b1
output-node name=output input=a2 objective=quadratic
"""


def minibatch(rng: np.random.Generator, num_examples: int, frames: int) -> NnetExample:
    examples = [
        NnetExample(
            [
                frames_io("input", -1, rng.normal(size=(frames + 2, 3)).astype(np.float32)),
                frames_io("output", 0, rng.normal(size=(frames, 2)).astype(np.float32)),
            ]
        )
        for _ in range(num_examples)
    ]
    return merge_examples(examples, compress_features=False)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_nnet(Nnet.from_config(parse_config_lines(CONFIG, "config")), "0.raw")
    rng = np.random.default_rng(3)
    with TableWriter("ark:egs", EXAMPLE) as writer:
        for number, (size, frames) in enumerate([(4, 5), (4, 5), (3, 5), (1, 8)]):
            writer.write(str(number), minibatch(rng, size, frames))
    return tmp_path


def train(model_out: str, *options: str) -> int:
    return train_main(["--use-gpu=no", *options, "0.raw", "ark:egs", model_out])


@pytest.mark.parametrize("binary", ["true", "false"])
def test_training_with_a_cache_compiles_nothing(folder, capsys, binary):
    assert compile_main([f"--binary={binary}", "--egs=ark:egs", "0.raw", "cache"]) == 0
    assert "Compiled 4 programs for 4 examples" in capsys.readouterr().err
    assert train("plain.raw") == 0
    capsys.readouterr()
    assert train("cached.raw", "--read-cache=cache", "--write-cache=after", "--verbose=2") == 0
    err = capsys.readouterr().err
    assert "0 compilation, 0 optimization, " in err
    assert "total for" not in err
    assert (folder / "cached.raw").read_bytes() == (folder / "plain.raw").read_bytes()


def test_cache_of_training_is_the_same_programs(folder):
    assert train("plain.raw", "--write-cache=trained") == 0
    assert compile_main(["--egs=ark:egs", "0.raw", "compiled"]) == 0
    assert (folder / "trained").read_bytes() == (folder / "compiled").read_bytes()


def test_broken_cache_is_a_warning(folder, capsys):
    (folder / "cache").write_bytes(b"\0Bgarbage")
    assert train("plain.raw") == 0
    assert train("1.raw", "--read-cache=cache") == 0
    assert "WARNING" in capsys.readouterr().err
    assert (folder / "1.raw").read_bytes() == (folder / "plain.raw").read_bytes()


def test_verbose_shows_times_and_sizes(folder, capsys):
    compile_main(["--verbose=2", "--egs=ark:egs", "0.raw", "cache"])
    err = capsys.readouterr().err
    for words in ("compilation of", "merge-variables: ", "expansion to 4 sequences: ", "total for"):
        assert words in err
    assert "seconds taken in nnet3 compilation total (breakdown: " in err


def test_too_small_a_cache_is_told(folder, capsys):
    assert compile_main(["--compiler.cache-capacity=2", "--egs=ark:egs", "0.raw", "cache"]) == 0
    assert "--compiler.cache-capacity" in capsys.readouterr().err


def test_errors(folder, capsys):
    assert compile_main(["--egs=ark:none", "0.raw", "cache"]) == 255
    assert compile_main(["--egs=ark:egs", "0.raw", "request", "cache"]) == 255
    assert compile_main(["0.raw", "cache"]) == 255
    assert not (folder / "cache").exists()


CHAIN_CONFIG = """
input-node name=input dim=5
component name=a type=AffineComponent input-dim=15 output-dim=300
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
output-node name=output input=a
output-node name=output-xent input=a
output-node name=output-x input=a
"""


@pytest.mark.parametrize("xent", [0.0, 0.1])
@pytest.mark.parametrize("is_e2e", [False, True])
def test_chain_examples_give_the_requests_of_their_trainer(xent, is_e2e):
    write_nnet(Nnet.from_config(parse_config_lines(CHAIN_CONFIG, "config")), "chain.raw")
    eg = chain_example(0, is_e2e)
    flags = [f"--xent-regularize={xent}"] if xent else []
    with TableWriter("ark:one", CHAIN_EXAMPLE) as writer:
        writer.write("b?lang=x", eg)
    assert compile_main(["--egs=ark:one", "chain.raw", "cache"]) == 0
    compiler = CachingOptimizingCompiler(read_nnet("chain.raw"))
    assert load_cache("cache", compiler)
    (request,) = compiler.cache
    assert [spec.name for spec in request.outputs] == ["output-x"]
    assert request.outputs[0].indexes.tolist() == eg.outputs[0].indexes.tolist()
    with TableWriter("ark:one", CHAIN_EXAMPLE) as writer:
        writer.write("a", eg)
    assert compile_main(["--egs=ark:one", *flags, "chain.raw", "cache"]) == 0
    compiler = CachingOptimizingCompiler(read_nnet("chain.raw"))
    assert load_cache("cache", compiler)
    (request,) = compiler.cache
    names = ["output", "output-xent"] if xent else ["output"]
    assert [(spec.name, spec.has_deriv) for spec in request.outputs] == [(n, True) for n in names]
