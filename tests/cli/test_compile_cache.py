"""With the cache of nnet3-compile --egs, nnet3-train compiles nothing and gives the same model."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.chain.example import CHAIN_EXAMPLE
from nnet3tools.cli.nnet3_compile import main as compile_main
from nnet3tools.cli.nnet3_computation_info import main as computation_info
from nnet3tools.cli.nnet3_compute import nnet3_compute_batch
from nnet3tools.cli.nnet3_compute_prob import main as compute_prob
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
from support.configs import in_a_row
from support.programs import run, write_table

# No component here draws random numbers: Kaldi's compiler draws some too, so that which minibatches
# a component stores statistics of depends on whether anything was compiled.
CONFIG = in_a_row("""input dim=3
a1 AffineComponent input-dim=9 output-dim=7 \
input=Append(Offset(input, -1), input, Offset(input, 1))
b1 BatchNormComponent dim=7
a2 AffineComponent input-dim=7 output-dim=2
output objective=quadratic""")


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
    (folder / "narrow").write_text(
        "input-node name=input dim=2\ncomponent name=a type=NoOpComponent dim=2\n"
        "component-node name=a component=a input=input\noutput-node name=output input=a\n"
    )
    assert run("nnet3-init", "narrow", "narrow.raw") == 0
    capsys.readouterr()
    assert compile_main(["--egs=ark:egs", "narrow.raw", "cache"]) == 255
    assert "the network expects 2" in capsys.readouterr().err
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


def objective(capsys, *options):
    """The log lines of nnet3-compute-prob, without the time of compiling."""
    capsys.readouterr()
    tensor.random.seed(0)  # for statistics of the batch norm, which has none yet
    assert compute_prob(["--use-gpu=no", *options, "0.raw", "ark:egs"]) == 0
    return capsys.readouterr().err.splitlines()


def test_compute_prob_reads_what_it_or_nnet3_compile_has_written(capsys):
    plain = [line for line in objective(capsys, "--write-cache=own") if "Overall" in line]
    flags = ["--need-model-derivative=false", "--store-component-stats=false"]
    compile_main([*flags, "--collapse-model=true", "--egs=ark:egs", "0.raw", "compiled"])
    for cache in ("own", "compiled"):
        lines = objective(capsys, f"--read-cache={cache}", "--verbose=2")
        assert any(f"Read computation cache from {cache}" in line for line in lines)
        assert not any("total for" in line for line in lines)
        assert [line.split(") ")[1] for line in lines if "Overall" in line] == [
            line.split(") ")[1] for line in plain
        ]


def test_a_missing_cache_is_named_and_not_taken_for_one_of_training(capsys):
    lines = objective(capsys, "--read-cache=none")
    warnings = [line for line in lines if "--read-cache=none: no such file, compiling anew" in line]
    assert len(warnings) == 1


def test_batches_of_utterances_read_what_they_have_written(folder, capsys):
    features = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    write_table("ark:feats", {"u1": features, "u2": features[:13]})
    words = ["--use-gpu=no", "--verbose=2", "0.raw", "ark:feats"]
    tensor.random.seed(0)
    assert nnet3_compute_batch(["--write-cache=cache", *words, "ark:plain"]) == 0
    assert "total for" in capsys.readouterr().err
    tensor.random.seed(0)
    assert nnet3_compute_batch(["--read-cache=cache", *words, "ark:cached"]) == 0
    assert "total for" not in capsys.readouterr().err
    assert (folder / "cached").read_bytes() == (folder / "plain").read_bytes()


def test_computation_info_lists_the_programs_of_a_cache_and_reports_one(capsys):
    compile_main(["--egs=ark:egs", "0.raw", "cache"])
    capsys.readouterr()
    assert computation_info(["0.raw", "cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"program {i}" for i in (1, 2, 3, 4)]
    assert "input 28 rows, output 20 rows + derivative" in lines[0]
    assert computation_info(["--program=2", "0.raw", "cache"]) == 0
    assert "# begin forward commands\nc0: m1 = user input" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--program=5", "0.raw", "cache"], "--program=5: cache has 4"),
        (["chain.raw", "cache"], "cache: it was made for a network of another structure"),
        (["0.raw", "foreign"], "foreign: it was made by processor pdp11, expected "),
        (["0.raw", "older"], "older: it was made by version nnet3tools-0.0.1, expected "),
    ],
)
def test_computation_info_refuses_foreign_caches_in_one_line(folder, capsys, words, problem):
    write_nnet(Nnet.from_config(parse_config_lines(CHAIN_CONFIG, "config")), "chain.raw")
    compile_main(["--egs=ark:egs", "0.raw", "cache"])
    forge(folder)
    capsys.readouterr()
    assert computation_info(words) == 255
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 1
    assert problem in errors[0]


def forge(folder):
    """Write the cache as another processor and another version would have made it."""
    from nnet3tools.program.seal import _MAKERS

    data = (folder / "cache").read_bytes()
    for name, token, other in (
        ("foreign", "<Processor>", "pdp11"),
        ("older", "<Version>", "nnet3tools-0.0.1"),
    ):
        old, new = (f"{token} {value} ".encode() for value in (_MAKERS[token], other))
        assert data.count(old) == 1
        (folder / name).write_bytes(data.replace(old, new))


@pytest.mark.parametrize(
    ("name", "reason"), [("foreign", "processor pdp11"), ("older", "version nnet3tools-0.0.1")]
)
def test_trainers_compile_anew_if_the_cache_is_foreign(folder, capsys, name, reason):
    compile_main(["--egs=ark:egs", "0.raw", "cache"])
    forge(folder)
    assert train("plain.raw") == 0
    capsys.readouterr()
    assert train("1.raw", f"--read-cache={name}") == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert f"Not using the computation cache {name}, compiling anew: " in warnings[0]
    assert reason in warnings[0]
    assert (folder / "1.raw").read_bytes() == (folder / "plain.raw").read_bytes()
