"""benchmarks/gpu on the emulated device: all that it would do on a real one, in small."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.program.component_commands import Propagate
from nnet3tools.tensor.cuda.device import use_device
from nnet3tools.training.running import computation_request
from support.configs import in_a_row
from support.emulated_cuda import needs_compiler, to_device

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

CONFIG = in_a_row("""input dim=4
a NaturalGradientAffineComponent input-dim=12 output-dim=6 \
input=Append(Offset(input, -1), input, Offset(input, 1))
r RectifiedLinearComponent dim=6
t TdnnComponent input-dim=6 output-dim=7 time-offsets=0
ls LogSoftmaxComponent dim=7""")


@pytest.fixture
def program(monkeypatch):
    """Its main module, and a tiny network (pytest-benchmark owns the name "benchmark")."""
    for folder in (BENCHMARKS, BENCHMARKS / "gpu"):
        monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location("gpu_benchmark", BENCHMARKS / "gpu/__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tiny = module.BenchNetwork("tdnn", CONFIG, 1, 1, 5, 3, classes=7, dim=4)
    yield module, tiny
    for name in (
        "ours",
        "networks",
        "memory_growth",
        "torch_networks",
        "train",
        "kernel_times",
        "changes",
        "cost_model",
        "host_time",
        "without",
        "ceilings",
        "products",
        "utterances",
    ):
        sys.modules.pop(name, None)


def options(module, monkeypatch, *words: str):
    monkeypatch.setattr(sys, "argv", ["benchmarks/gpu", *words])
    return module.main()


@needs_compiler
def test_the_table_has_every_variant_and_the_share_of_products(
    device, program, monkeypatch, capsys
):
    module, tiny = program
    monkeypatch.setattr(module, "choose_device", lambda *_: to_device(np.zeros(0, np.float32)))
    monkeypatch.setattr(
        module,
        "NETWORKS",
        {"tdnn": lambda: tiny, "large-tdnnf": lambda: replace(tiny, name="large-tdnnf")},
    )
    monkeypatch.setattr(module, "product_rate", lambda device: 1e6)
    monkeypatch.setitem(sys.modules, "nnet3tools.tensor.cuda.cuda", FakeCuda)
    monkeypatch.setattr(
        importlib.import_module("nnet3tools.tensor.cuda"), "cuda", FakeCuda, raising=False
    )
    words = ("--minibatches=2", "--rounds=1", "--no-torch", "--networks", "tdnn", "large-tdnnf")
    assert options(module, monkeypatch, *words) == 0
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if line.startswith(("| tdnn", "| large"))]
    assert len(rows) == 2
    for row in rows:
        cells = [cell.strip() for cell in row.split("|")[2:-1]]
        assert all(float(cell.replace(",", "")) > 0 for cell in cells[:4])
        assert cells[4:7] == ["", "", ""]
        assert cells[7].endswith("%")
        assert cells[8].endswith("%")
    assert "- tdnn: of our run without graphs" in out


class FakeCuda:
    @staticmethod
    def describe() -> str:
        return "emulated"


@needs_compiler
def test_products_are_counted_by_their_operations(device, program):
    module, tiny = program
    _, flops = module.products(tiny, to_device(np.zeros(0, np.float32)))
    rows = tiny.minibatch * tiny.frames
    forward = 2 * rows * (12 * 6 + 6 * 7)
    assert flops >= 3 * forward - 2 * rows * 12 * 6  # both derivatives, but not the input's


def test_targets_are_told_from_the_figures(program):
    module, _ = program
    figures = {
        "graph, NG": 90.0, "graph, plain": 100.0, "no graph, NG": 40.0, "torch eager": 80.0,
        "torch graph": 120.0,
    }  # fmt: skip
    small, large = module.targets("lstm", figures), module.targets("large-lstm", figures)
    assert [line.rpartition(": ")[2] for line in small] == ["MISSED", "MISSED", "MISSED"]
    assert [line.rpartition(": ")[2] for line in large] == ["MISSED", "MISSED", "MISSED"]
    faster = module.targets("lstm", figures | {"torch graph": 75.0})
    assert [line.rpartition(": ")[2] for line in faster] == ["met", "met", "MISSED"]


def test_growing_memory_is_noticed(program, monkeypatch, capsys):
    _, tiny = program
    growth = importlib.import_module("memory_growth")
    sizes = iter([10 << 20] * 10 + [i << 20 for i in range(10, 20)])
    monkeypatch.setattr(growth, "_used_bytes", lambda device: next(sizes))
    host = np.zeros(0, np.float32)
    assert growth.check_growth(tiny, host, 10)
    assert not growth.check_growth(tiny, host, 10)
    assert "GREW by 8.0 MB" in capsys.readouterr().out


def test_time_in_which_any_kernel_runs_counts_once(program):
    times = importlib.import_module("kernel_times")
    assert times.busy([(4.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 2.5)]) == 5.0
    assert times.kind("sm80_xmma_gemm_f32f32") == "products"
    assert times.kind("level_1234") == "level"


def test_gaps_are_told_apart_by_the_launch_of_the_next_kernel(program):
    """Kernels of graph 7 at 0-2, 1-3 and 5-6, of graph 9 at 8-9 and 10-11."""
    times = importlib.import_module("kernel_times")
    spans = [(8.0, 9.0, 9), (0.0, 2.0, 7), (5.0, 6.0, 7), (1.0, 3.0, 7), (10.0, 11.0, 9)]
    assert times.timeline(spans) == [(0.0, 6.0, 3, 2.0, 0.0), (8.0, 11.0, 2, 1.0, 2.0)]


@pytest.fixture
def measuring(device, program, monkeypatch):
    """A module of benchmarks/gpu, by name, that finds the emulated device."""
    ours = importlib.import_module("ours")
    like = to_device(np.zeros(0, np.float32))
    monkeypatch.setattr(ours, "choose_device", lambda _: like)
    real = ours.set_math
    monkeypatch.setattr(ours, "set_math", lambda name, on_paper: real(name, True))
    return importlib.import_module


@needs_compiler
def test_each_product_is_timed_in_each_precision_and_by_cublas_lt(measuring, program, capsys):
    products = measuring("products")
    _, tiny = program
    products.table(tiny, to_device(np.zeros(0, np.float32)), on_paper=False)
    *lines, last = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    assert "15 x 6 x 12+ B'" in [line[1] for line in lines]
    assert all(len(line) == 11 for line in (*lines, last))
    assert float(last[2]) >= 6
    assert all(float(cell.rstrip(" |")) > 0 for line in lines for cell in line[2:])


@needs_compiler
def test_ceilings_are_those_of_copies_products_and_nccl(measuring, program, monkeypatch, capsys):
    """NCCL is a model that leaves the array of the only rank as it is, or is missing."""
    ceilings = measuring("ceilings")
    monkeypatch.setattr(ceilings, "_SIZE", 32)
    monkeypatch.setattr(ceilings, "_COPIED", (4096,))
    monkeypatch.setattr(ceilings, "_SUMMED", (4096,))
    nccl = SimpleNamespace(
        available=True,
        NcclCommunicator=lambda *_: SimpleNamespace(allReduce=lambda *_: None),
        get_unique_id=lambda: bytes(128),
        NCCL_FLOAT32=7,
        NCCL_SUM=0,
    )
    for module, status in ((nccl, 0), (None, 1)):
        monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", module)
        assert options(ceilings, monkeypatch) == status
        out, err = capsys.readouterr()
        lines = out.splitlines()[2:]
        assert len(lines) == (5 if status else 6)
        assert all(float(line.split(" | ")[1].split()[0]) >= 0 for line in lines)
        assert ("CuPy finds no NCCL" in err) == bool(status)


@pytest.mark.parametrize("name", ["tdnnf", "large-tdnnf"])
def test_pytorch_is_given_the_frames_that_our_network_computes(program, name):
    """Frames of all factored layers; PyTorch's convolutions compute a few that no layer needs."""
    network = importlib.import_module("networks").NETWORKS[name]()
    frames = network.left + network.frames + network.right - 2
    total = 0
    for stride, every in network.factored_layers():
        frames = -(-(frames - 2 * stride) // every)
        total += frames
    assert frames == len(range(0, network.frames, network.subsampling))
    rows = _affine_rows(network)
    assert len(rows) == len(network.layers)
    assert sum(rows) <= total <= 1.005 * sum(rows)


def _affine_rows(network):
    """Frames that our compiled network computes of each factored layer's second half."""
    nnet = Nnet.from_config(parse_config_lines(network.config))
    small = replace(network, minibatch=1)
    request = computation_request(
        nnet, importlib.import_module("ours").minibatch(small), True, False
    )
    computation = CachingOptimizingCompiler(nnet).compile(request)
    found = []
    for command in computation.commands:
        if isinstance(command, Propagate):
            component = nnet.components[command.component]
            if component.output_dim == network.width and component.input_dim == network.bottleneck:
                found.append(computation.submatrices[command.output].num_rows)
    return found


@needs_compiler
def test_a_learning_rate_costs_no_captures_and_varying_targets_few(device, program, monkeypatch):
    changes = importlib.import_module("changes")
    for name in ("_MINIBATCHES", "_WARM_UP"):
        monkeypatch.setattr(changes, name, 24)
    _, tiny = program
    counting = changes._Counting(device)
    with use_device(counting):
        like = to_device(np.zeros(0, np.float32))
        *cases, (digest, _, _) = changes.run(tiny, like, counting)
    captures = {case: count for case, _, count in cases}
    assert captures["a new learning rate"] <= 2
    assert captures["a new shape"] > 4
    assert captures["the same again"] <= 4
    assert len(digest) == 64


@needs_compiler
def test_training_works_with_each_improvement_switched_off(device, program, monkeypatch):
    without = importlib.import_module("without")
    ours = importlib.import_module("ours")
    _, tiny = program
    for name, changes in without.SWITCHES.items():
        with monkeypatch.context() as patch:
            for change in changes:
                patch.setattr(*change)  # an error if there is no such attribute
            variant = ours.Ours(tiny, to_device(np.zeros(0, np.float32)), True, True)
            variant.run(6)
            assert np.isfinite(vectorize(variant.trainer.nnet)).all(), name
