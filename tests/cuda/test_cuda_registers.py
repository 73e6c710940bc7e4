"""Kernels as ptxas makes them for each generation of GPUs: values in registers, shared memory."""

import numpy as np
import pytest
import test_cuda_chain
import test_cuda_nodes

from nnet3tools.tensor.cuda.device import PRELUDE
from nnet3tools.tensor.cuda.level_source import in_registers
from nnet3tools.tensor.operators.leaky_hmm import leaky_hmm
from nnet3tools.tensor.operators.numerator import numerator
from support import kernel_compilers, model_cupy
from support.emulated_cuda import REAL, mirror
from support.paper_device import paper_device

needs_nvcc = pytest.mark.skipif(kernel_compilers.nvcc() is None, reason="nvcc is not installed")
GENERATIONS = ("80", "90", "100")
MOST_STATIC_SHARED = 48 << 10
SAMPLE = 5
"""So many of a network's kernels, the longest ones, are compiled at each run of the tests."""


def chain_sources():
    """The kernels of LF-MMI."""
    rng = np.random.default_rng(1)
    output = rng.normal(size=(15, test_cuda_chain.PDFS)).astype(np.float32)
    with paper_device(132) as device:
        there, deriv = mirror([output, output])
        leaky_hmm(mirror(np.zeros(3)), there, test_cuda_chain.random_hmm(rng), 3, 0.1, deriv)
        numerator(mirror(np.zeros(1)), there, test_cuda_chain.random_paths(rng), deriv)
    return device.sources


def check(sources, wanted, folder):
    """No kernel keeps values in memory, at least not as it is loaded; see CudaDevice.kernel."""
    found = kernel_compilers.resources(PRELUDE, sources.values(), wanted, folder)
    for architecture, kernels in found.items():
        assert kernels.keys() == sources.keys()
        spilling = [name for name, used in kernels.items() if used.stack_bytes]
        again = [in_registers(sources[name]) for name in spilling]
        if again:
            kernels |= kernel_compilers.resources(PRELUDE, again, [architecture], folder)[
                architecture
            ]
        still = {name: used for name, used in kernels.items() if used.stack_bytes}
        assert not still, f"sm_{architecture}: {still}"
        assert max(used.shared_bytes for used in kernels.values()) <= MOST_STATIC_SHARED
        # fused levels have blocks of 256 threads, of which one at least must find its registers
        assert max(used.registers for used in kernels.values()) <= 255
        print(f"sm_{architecture}: {len(kernels)} kernels, {len(spilling)} compiled twice")


@needs_nvcc
@pytest.mark.skipif(REAL, reason="sources are those of the paper device")
def test_the_longest_kernels_keep_all_values_in_registers(tmp_path):
    sources = test_cuda_nodes.minibatches("tdnnf")[1]
    longest = sorted(sources, key=lambda name: -len(sources[name]))[:SAMPLE]
    some = chain_sources() | {name: sources[name] for name in longest}
    check(some, kernel_compilers.architectures(["90"]), tmp_path)


@pytest.mark.slow
@needs_nvcc
@pytest.mark.skipif(REAL, reason="sources are those of the paper device")
def test_all_kernels_of_the_bench_networks_keep_all_values_in_registers(tmp_path):
    sources = chain_sources()
    for name in test_cuda_nodes.NODES:
        sources |= test_cuda_nodes.minibatches(name)[1]
    assert len(sources) > 150
    wanted = kernel_compilers.architectures(GENERATIONS)
    assert wanted
    check(sources, wanted, tmp_path)


@needs_nvcc
def test_what_spills_is_seen(tmp_path):
    body = " + ".join(f"x[t + {i}] * y[{i}]" for i in range(40))
    lines = "".join(f"float v{i} = x[t * {i + 2}];" for i in range(60))
    uses = " + ".join(f"v{i} * y[{i}]" for i in range(60))
    source = (
        'extern "C" __launch_bounds__(1024, 2) __global__ void much(const float* x, float* y) {\n'
        f"int t = threadIdx.x; {lines} __syncthreads(); y[t] = {uses} + {body}; }}\n"
    )
    used = kernel_compilers.resources(PRELUDE, [source], ["90"], tmp_path)["90"]["much"]
    assert used.stack_bytes > 0
    assert used.registers == 32


@pytest.mark.skipif(REAL, reason="a real compiler decides by itself what spills")
def test_a_fused_level_that_spills_is_loaded_with_more_registers(device, monkeypatch):
    loaded = []

    def spilled(code):
        loaded.append(code)
        return 8 if "__launch_bounds__(256)" in code else 0

    monkeypatch.setattr(model_cupy, "spilled", spilled)
    head = 'extern "C" {} __global__ void nothing{}(float* x) {{}}'
    device.kernel(head.format("__launch_bounds__(256)", 1), "nothing1")
    device.kernel(head.format("", 2), "nothing2")
    bounds = [code.removeprefix(PRELUDE).split("__global__")[0] for code in loaded]
    assert bounds == [
        'extern "C" __launch_bounds__(256) ',
        'extern "C" __launch_bounds__(256, 1) ',
        'extern "C"  ',
    ]
