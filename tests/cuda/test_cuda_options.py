"""The --cuda-* options: which programs have them, and what they do."""

import sys
import types

import numpy as np
import pytest

from nnet3tools.cli import gpu
from nnet3tools.cli.device_options import CudaAllocatorOptions, CudaDeviceOptions
from nnet3tools.cli.options import program
from nnet3tools.cli.programs import PROGRAMS, main_of
from nnet3tools.errors import OptionError, UserError
from nnet3tools.tensor.cuda.pools import SharedLimit
from support.emulated_cuda import REAL, needs_compiler

DEVICE = {"cuda-use-tensor-cores": False, "cuda-use-tf32-compute": False}
ALLOCATOR = {"cuda-cache-memory": True, "cuda-memory-proportion": 0.5}
KALDIS = {
    "nnet3-compute": DEVICE,
    "nnet3-compute-batch": DEVICE,
    "nnet3-latgen-faster-batch": DEVICE,
    "nnet3-xvector-compute": DEVICE,
    "nnet3-xvector-compute-batched": DEVICE,
    "nnet3-train": ALLOCATOR,
    "nnet3-chain-train": DEVICE | ALLOCATOR,
    "nnet3-chain-train2": ALLOCATOR,
    "nnet3-chain-add-post-to-egs": DEVICE | ALLOCATOR,
}
"""Where Kaldi's sources call RegisterDeviceOptions and RegisterCuAllocatorOptions."""


@pytest.mark.parametrize("name", [name for name in KALDIS if name in PROGRAMS])
def test_programs_have_the_options_that_kaldis_register_with_the_same_defaults(name):
    specs = main_of(name).command_line.specs
    found = {key: specs[key][0].default for key in specs if key.startswith("cuda-")}
    assert found.keys() >= KALDIS[name].keys()
    assert {key: found[key] for key in KALDIS[name]} == KALDIS[name]


def device_options(tensor_cores: bool, tf32: bool, gpu_math: str = "fp32") -> CudaDeviceOptions:
    return CudaDeviceOptions(
        use_gpu="yes",
        gpu_math=gpu_math,
        cuda_use_tensor_cores=tensor_cores,
        cuda_use_tf32_compute=tf32,
    )


@pytest.mark.parametrize(
    ("tensor_cores", "tf32", "gpu_math", "expected"),
    [
        (False, False, "bf16", "bf16"),
        (True, False, "fp32", "fp16"),
        (False, True, "fp32", "tf32"),
        (True, True, "fp32", "fp16"),  # as in Kaldi, which looks at tensor cores last
        (False, True, "tf32", "tf32"),
    ],
)
def test_they_are_gpu_math_by_other_names(tensor_cores, tf32, gpu_math, expected):
    assert device_options(tensor_cores, tf32, gpu_math).math == expected


def test_they_may_not_contradict_gpu_math():
    with pytest.raises(OptionError, match="--gpu-math=bf16 and --cuda-use-tf32-compute=true"):
        _ = device_options(False, True, "bf16").math


@pytest.fixture
def old_gpu(monkeypatch):
    """A GPU that can do fp32 and fp16 only; the list of modes that were set."""
    done = []

    def set_math_mode(name: str) -> None:
        if name == "tf32":
            raise OptionError("--gpu-math=tf32: this device has compute capability 7.x")
        done.append(name)

    module = types.SimpleNamespace(set_math_mode=set_math_mode)
    monkeypatch.setattr(gpu.importlib, "import_module", lambda name: module)
    monkeypatch.setattr(gpu, "_open_gpu", lambda: "on the device")
    return done


def test_tf32_is_passed_over_by_an_old_gpu_only_under_kaldis_name(old_gpu, capsys):
    assert device_options(False, True).choose() == "on the device"
    assert "capability 7.x; products are done in fp32" in capsys.readouterr().err
    device_options(True, False).choose()
    assert old_gpu == ["fp16"]
    with pytest.raises(OptionError):
        gpu.choose_device("yes", "tf32")


class _Pool:
    """CuPy as far as memory goes: a GPU of 1,000 bytes of which 700 are free."""

    def __init__(self, monkeypatch) -> None:
        self.allocator: object = "pool"
        self.allocated: list[int] = []
        cupy = types.ModuleType("cupy")
        cupy.cuda = types.SimpleNamespace(
            set_allocator=lambda value: setattr(self, "allocator", value),
            runtime=types.SimpleNamespace(memGetInfo=lambda: (700, 1000)),
        )
        cupy.uint8, cupy.empty = np.uint8, self.empty
        monkeypatch.setitem(sys.modules, "cupy", cupy)

    def empty(self, size, dtype):
        if size > 700:
            raise MemoryError
        self.allocated.append(size)


@pytest.fixture
def pool(monkeypatch):
    return _Pool(monkeypatch)


def memory_options(*words: str) -> CudaAllocatorOptions:
    found = []

    @program("toy", "Usage: toy", CudaAllocatorOptions, num_args=0)
    def main(options: CudaAllocatorOptions, args: list[str]) -> None:
        found.append(options)

    assert main([*words, "--print-args=false"]) == 0
    return found[0]


def test_memory_is_taken_ahead_only_where_that_was_asked_for(pool):
    memory_options().apply("a device's array")
    memory_options("--cuda-memory-proportion=0.5").apply(np.empty(0))
    assert pool.allocated == []
    memory_options("--cuda-memory-proportion=0.5").apply("a device's array")
    assert pool.allocated == [500]


def test_memory_that_is_not_to_be_had_is_one_line(pool):
    with pytest.raises(UserError, match=r"proportion=0\.9: .* are not to be had.*others use"):
        memory_options("--cuda-memory-proportion=0.9").apply("a device's array")
    for value in ("0.01", "0.99", "7"):
        with pytest.raises(OptionError, match=r"expected at least 0\.05"):
            memory_options(f"--cuda-memory-proportion={value}").apply("a device's array")


def test_without_the_cache_there_is_no_pool(pool):
    memory_options("--cuda-cache-memory=false").apply("a device's array")
    assert pool.allocator is None
    assert pool.allocated == []


class _Limited:
    """CuPy's MemoryPool as far as its limit goes."""

    def __init__(self, limit: int) -> None:
        self.limit, self.total = limit, 0

    def get_limit(self) -> int:
        return self.limit

    def set_limit(self, size: int) -> None:
        self.limit = size

    def total_bytes(self) -> int:
        return self.total

    used_bytes = total_bytes

    def malloc(self, size: int) -> None:
        if self.limit and self.total + size > self.limit:
            raise MemoryError
        self.total += size


def test_two_pools_together_keep_the_limit_that_cupy_applies_to_each():
    arrays, temporaries = _Limited(100), _Limited(100)
    shared = SharedLimit(arrays, temporaries)
    shared.share()
    arrays.malloc(70)
    shared.share()
    with pytest.raises(MemoryError):
        temporaries.malloc(31)
    temporaries.malloc(30)
    shared.share()
    assert shared.free_bytes() == 0
    for pool in (arrays, temporaries):
        with pytest.raises(MemoryError):
            pool.malloc(1)
    temporaries.total = 10  # given back
    shared.share()
    arrays.malloc(20)


def test_without_a_limit_none_is_set():
    pools = _Limited(0), _Limited(0)
    SharedLimit(*pools).share()
    assert [pool.limit for pool in pools] == [0, 0]


@needs_compiler
@pytest.mark.skipif(REAL, reason="sets the limit of the model's pool")
def test_temporaries_of_graphs_have_what_arrays_leave_of_the_limit(device):
    pool, real = device.machine.default_pool, device._device
    pool.set_limit(pool.total_bytes() + (1 << 20))
    real._limit = SharedLimit(pool, real._capture_memory)
    held = device.empty((700 << 10,), np.uint8)
    with pytest.raises(MemoryError):
        device.capture(lambda: device.empty((500 << 10,), np.uint8))
    graph = device.capture(lambda: device.empty((200 << 10,), np.uint8))
    with pytest.raises(MemoryError):
        device.empty((200 << 10,), np.uint8)
    assert real.memory()[0] < 200 << 10
    del held, graph
    device.capture(lambda: device.empty((500 << 10,), np.uint8))
