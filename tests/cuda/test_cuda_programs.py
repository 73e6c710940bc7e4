"""Programs that compute: their GPU options, and their results on the emulated device."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.cli import device_options
from nnet3tools.cli.programs import PROGRAMS, main_of
from nnet3tools.io.holders import MATRIX, VECTOR
from nnet3tools.io.table import SequentialTableReader, TableWriter
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.training.example import EXAMPLE
from support.configs import in_a_row
from support.emulated_cuda import needs_compiler, to_device
from support.training_helpers import minibatch, network

KALDIS_DEFAULTS = {
    "nnet3-train": "yes",
    "nnet3-compute": "yes",
    "nnet3-compute-batch": "yes",
    "nnet3-compute-from-egs": "yes",
    "nnet3-show-progress": "no",
    "nnet3-xvector-compute": "no",
    "nnet3-xvector-compute-batched": "no",
    "nnet3-combine": "yes",
    "nnet3-compute-prob": "no",  # Kaldi's has no such option: it never uses a GPU
    "nnet3-chain-train": "yes",
    "nnet3-chain-train2": "yes",
    "nnet3-chain-combine": "yes",
    "nnet3-chain-combine2": "yes",
    "nnet3-chain-add-post-to-egs": "yes",
    "nnet3-chain-compute-post": "yes",
    "nnet3-align-compiled": "yes",
    "nnet3-latgen-faster-batch": "yes",
    "nnet3-chain-compute-prob": "no",  # nor this one
    "nnet3-discriminative-compute-objf": "no",  # nor this one
    "nnet3-discriminative-compute-from-egs": "yes",
    "nnet3-discriminative-train": "yes",
}


def test_every_program_that_computes_has_the_gpu_options_with_the_same_help():
    found, helps = {}, set()
    for name in PROGRAMS:
        specs = main_of(name).command_line.specs
        if "use-gpu" in specs and not {"stage", "cmd"} & specs.keys():  # no driver
            device, math = (specs[key][0] for key in ("use-gpu", "gpu-math"))
            found[name] = str(device.default)
            helps.add((device.text, math.text, math.default))
    assert found == KALDIS_DEFAULTS
    assert len(helps) == 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model, features, and examples; programs run there."""
    monkeypatch.chdir(tmp_path)
    write_nnet(network(), "0.raw")
    write_nnet(network(seed=1), "1.raw")
    rng = np.random.default_rng(0)
    with TableWriter("ark:feats", MATRIX) as writer:
        for i, rows in enumerate((30, 30, 17)):
            writer.write(f"utt{i}", rng.normal(size=(rows, 3)).astype(np.float32))
    with TableWriter("ark:egs", EXAMPLE) as writer:
        for i in range(4):
            writer.write(f"eg{i}", minibatch(seed=i).compressed())
    return tmp_path


def run(monkeypatch, on_device: bool, name: str, *words: str) -> None:
    """Run a program on the emulated device or the host."""
    main = main_of(name)
    tensor.random.seed(0)  # batch normalisation without data makes statistics up
    if on_device:

        def choose(use_gpu: str, gpu_math: str = "fp32", cpu_kernels: str = "native"):
            assert (use_gpu, gpu_math) == ("wait", "tf32")
            return to_device(np.zeros(0, np.float32))

        monkeypatch.setattr(device_options, "choose_device", choose)
        words = ("--use-gpu=wait", "--gpu-math=tf32", *words)
    else:
        words = ("--use-gpu=no", *words)
    assert main([*words]) == 0
    monkeypatch.undo()


def tables(path: str, holder=MATRIX) -> dict[str, np.ndarray]:
    with SequentialTableReader(f"ark:{path}", holder) as reader:
        return dict(reader)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nnet3-compute", ("--frames-per-chunk=10", "0.raw", "ark:feats", "ark:out")),
        (
            "nnet3-compute",
            ("--looped=true", "--frames-per-chunk=9", "0.raw", "ark:feats", "ark:out"),
        ),
        ("nnet3-compute-batch", ("--minibatch-size=4", "0.raw", "ark:feats", "ark:out")),
        ("nnet3-compute-from-egs", ("--apply-exp=true", "0.raw", "ark:egs", "ark:out")),
    ],
)
def test_outputs_are_those_of_the_cpu(device, folder, monkeypatch, name, words):
    results = []
    for on_device in (False, True):
        with monkeypatch.context() as patch:
            run(patch, on_device, name, *words)
        results.append(tables("out"))
    assert device.launched
    assert list(results[0]) == list(results[1])
    for key, value in results[0].items():
        np.testing.assert_allclose(results[1][key], value, rtol=1e-3, atol=1e-5)


@needs_compiler
def test_combined_models_are_those_of_the_cpu(device, folder, monkeypatch):
    results = []
    for on_device in (False, True):
        with monkeypatch.context() as patch:
            words = ("--batchnorm-test-mode=true", "0.raw", "1.raw", "0.raw", "ark:egs", "out.raw")
            run(patch, on_device, "nnet3-combine", *words)
        nnet = read_nnet("out.raw")
        batchnorm = nnet.component(2)
        results.append([vectorize(nnet), batchnorm.stats_sum, float(batchnorm.count)])
    assert device.launched
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("nnet3-xvector-compute", "--min-chunk-size=5"),
        ("nnet3-xvector-compute-batched", "--chunk-size=12"),
    ],
)
def test_xvectors_are_those_of_the_cpu(device, folder, monkeypatch, name, option):
    from nnet3tools.nnet.config import parse_config_lines
    from nnet3tools.nnet.nnet import Nnet

    config = in_a_row("""input dim=3
e StatisticsExtractionComponent input-dim=3 input-period=1 output-period=1
p StatisticsPoolingComponent input-dim=7 input-period=1 left-context=0 right-context=10000 \
num-log-count-features=0 output-stddevs=true input=Round(e, 1)
a AffineComponent input-dim=6 output-dim=4 input=ReplaceIndex(p, t, 0)""")
    write_nnet(Nnet.from_config(parse_config_lines(config.replace("\\\n", ""))), "x.raw")
    results = []
    for on_device in (False, True):
        with monkeypatch.context() as patch:
            run(patch, on_device, name, option, "x.raw", "ark:feats", "ark:out")
        results.append(tables("out", VECTOR))
    for key, value in results[0].items():
        np.testing.assert_allclose(results[1][key], value, rtol=1e-3, atol=1e-5)


def figures(text: str) -> list[float]:
    """Numbers of the lines that report objectives and accuracies."""
    lines = [t for t in text.splitlines() if "Overall" in t or "per component" in t]
    words = " ".join(t.split(") ", 1)[1] for t in lines).replace(":", " ").split()
    numbers = []
    for word in words:
        try:
            numbers.append(float(word.rstrip(".,")))
        except ValueError:
            continue
    return numbers


@needs_compiler
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nnet3-compute-prob", ("0.raw", "ark:egs")),
        ("nnet3-show-progress", ("0.raw", "1.raw", "ark:egs")),
    ],
)
def test_figures_are_those_of_the_cpu(device, folder, monkeypatch, capsys, name, words):
    results = []
    for on_device in (False, True):
        with monkeypatch.context() as patch:
            run(patch, on_device, name, *words)
        results.append(figures(capsys.readouterr().err))
    assert len(results[0]) >= 4
    assert device.launched
    np.testing.assert_allclose(results[1], results[0], rtol=1e-3, atol=1e-5)


@needs_compiler
def test_a_trained_model_is_that_of_the_cpu(device, folder, monkeypatch):
    for on_device in (False, True):
        with monkeypatch.context() as patch:
            words = ("--momentum=0.3", "0.raw", "ark:egs", f"{int(on_device)}.out")
            run(patch, on_device, "nnet3-train", *words)
    host, other = (vectorize(read_nnet(f"{i}.out")) for i in (0, 1))
    np.testing.assert_allclose(other, host, rtol=1e-3, atol=1e-4)
