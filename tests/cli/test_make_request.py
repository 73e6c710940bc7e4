"""nnet3-make-request: the requests that nnet3-compute and trainers make, and refused frames."""

import numpy as np
import pytest

from nnet3tools.cli.nnet3_compile import main as compile_main
from nnet3tools.cli.nnet3_make_request import main
from nnet3tools.executor.chunks import chunks_of_utterance
from nnet3tools.executor.simple_network import SimpleNetwork
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io.table import TableWriter
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.training.example import EXAMPLE, NnetExample, frames_io
from nnet3tools.training.running import computation_request
from support.programs import write_table
from support.random_networks import parse

CONFIG = """
input-node name=input dim=3
component name=a type=AffineComponent input-dim=9 output-dim=4
component-node name=a component=a input=Append(Offset(input, -2), input, Offset(input, 1))
output-node name=output input=a
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_nnet(parse(CONFIG), "final.raw")
    features = np.random.default_rng(1).normal(size=(25, 3)).astype(np.float32)
    write_table("ark:feats.ark", {"utt1": features[:7], "utt2": features})
    return tmp_path


def made(*options):
    """The request that the program writes with these options."""
    assert main([*options, "final.raw", "request"]) == 0
    return ComputationRequest.load("request")


def test_frames_get_the_context_of_the_network():
    request = made("--num-frames=5", "--frame-subsampling-factor=3", "--num-sequences=2")
    (given,), (wanted,) = request.inputs, request.outputs
    assert given.indexes[:, 1].tolist() == list(range(-2, 5)) * 2
    assert wanted.indexes[:, 1].tolist() == [0, 3] * 2
    assert given.indexes[:, 0].tolist() == [0] * 7 + [1] * 7
    assert not request.needs_derivatives


def test_chunks_of_an_utterance_are_those_of_nnet3_compute():
    flags = ["--frames-per-chunk=10", "--extra-left-context=1", "--extra-left-context-initial=0"]
    nnet = read_nnet("final.raw")
    simple = SimpleComputationOptions(
        frames_per_chunk=10, extra_left_context=1, extra_left_context_initial=0
    )
    chunks = chunks_of_utterance(25, 10, SimpleNetwork(nnet).context, simple, False)
    for number, chunk in enumerate(chunks):
        chosen = ["--feats=ark:feats.ark", "--key=utt2", f"--chunk={number}"]
        assert made(*chosen, *flags) == chunk.shape.request()
    assert compile_main(["final.raw", "request", "program"]) == 0


@pytest.mark.parametrize("derivative", ["true", "false"])
def test_an_example_gets_the_request_of_its_trainer(derivative):
    rng = np.random.default_rng(2)
    eg = NnetExample(
        [
            frames_io("input", -2, rng.normal(size=(8, 3)).astype(np.float32)),
            frames_io("output", 0, rng.normal(size=(5, 4)).astype(np.float32)),
        ]
    )
    with TableWriter("ark:egs", EXAMPLE) as writer:
        writer.write("a", eg)
    flags = [f"--need-model-derivative={derivative}", "--store-component-stats=true"]
    request = made("--egs=ark:egs", "--key=a", *flags)
    nnet = read_nnet("final.raw")
    assert request == computation_request(nnet, eg, derivative == "true", True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "expected one of --num-frames, --feats and --egs"),
        (["--num-frames=-3"], "--num-frames=-3: expected at least 0"),
        (["--num-frames=5", "--key=utt1"], "--key does not go with --num-frames"),
        (["--num-frames=5", "--chunk=1"], "--chunk=1: 5 frames have only chunk 0"),
        (["--feats=ark:feats.ark", "--chunk=7"], "--chunk=7: 7 frames have only chunk 0"),
        (["--feats=ark:feats.ark", "--key=utt3"], "ark:feats.ark: no utterance 'utt3'"),
        (["--num-frames=5", "--num-sequences=0"], "--num-sequences=0: expected at least 1"),
        (["--num-frames=5", "--num-sequences=2000000000"], "26000000000 rows need"),
        (["--num-frames=5", "--frame-subsampling-factor=0"], "must be > 0"),
    ],
)
def test_impossible_frames_are_refused_by_name(options, problem, folder, capsys):
    assert main([*options, "final.raw", "request"]) != 0
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 1
    assert problem in errors[0]
    assert not (folder / "request").exists()
