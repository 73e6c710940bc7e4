"""Products by cuBLAS and by cublasLt, and the rule that chooses an algorithm of cublasLt."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_cuda_streams import machines, train  # noqa: F401

from nnet3tools import tensor
from nnet3tools.errors import OptionError, ProgramError
from nnet3tools.tensor.cuda import cublas_lt
from nnet3tools.tensor.cuda.cublas_lt import Algorithm, choose
from support.emulated_cuda import REAL, fetch, needs_compiler, to_device
from support.model_cublas_lt import Proposal
from support.model_streams import Schedule

TESTS = Path(__file__).parents[1]
SELECTED = "NNET3TOOLS_GPU_PRODUCTS"
of_the_model = pytest.mark.skipif(REAL, reason="of the model")


def chosen(*found, inner=1 << 20):
    """The number of the algorithm that the rule takes, of algorithms (waves, parts)."""
    proposed = [Algorithm(i, waves, n, inner // n) for i, (waves, n) in enumerate(found)]
    return choose(proposed).result


def test_the_first_algorithm_is_taken_if_another_gives_little_more_work_to_the_gpu():
    assert chosen((0.59, 1), (0.62, 1), (0.73, 1)) == 0
    assert chosen((3.45, 1), (1.0, 1)) == 0  # 0.86 of the GPU, and all of it
    assert chosen((40.1, 1), (41.0, 1)) == 0
    assert chosen((0.1, 1)) == 0


def test_an_algorithm_that_fills_the_gpu_is_preferred_to_half_a_wave():
    assert chosen((78 / 132, 1), (117 / 132, 1), (1.0, 1)) == 1
    assert chosen((1.1, 1), (0.9, 1), (2.0, 1)) == 1  # the last wave of 1.1 is all but empty
    assert chosen((78 / 132, 1), (2 * 78 / 132, 2), (3 * 78 / 132, 3), inner=768) == 2


def test_short_sums_are_not_split_to_fill_the_gpu():
    assert chosen((32 / 132, 1), (64 / 132, 2), inner=192) == 0
    assert chosen((0.2, 4), (0.9, 8), inner=1024) == 0  # the first one may
    assert chosen((0.2, 1), (0.7, 8), (0.4, 2), inner=1024) == 2


def test_unknown_waves_change_nothing():
    assert chosen((0.0, 1), (1.0, 1)) == 0
    assert chosen((0.9, 1), (0.0, 1)) == 0
    assert chosen((0.3, 1), (0.0, 1), (0.9, 1)) == 2


def test_the_result_structure_has_cublaslts_layout():
    """Offsets that a C compiler finds in cublasLt.h (CUDA 12.9)."""
    result = cublas_lt._HeuristicResult
    names = "algo workspaceSize state wavesCount reserved".split()
    assert [getattr(result, name).offset for name in names] == [0, 64, 72, 76, 80]
    assert ctypes.sizeof(result) == 96


def test_another_library_of_products_is_a_clear_error(monkeypatch):
    monkeypatch.setenv(SELECTED, "mkl")
    with pytest.raises(OptionError, match=rf"{SELECTED}=mkl: expected cublas\|cublaslt"):
        cublas_lt.selected_rule()


@pytest.fixture
def library(machines, monkeypatch):  # noqa: F811
    """The model of cublasLt, which does the products of a new device."""
    monkeypatch.setenv(SELECTED, "cublaslt")
    return machines()._device._cublas._library


@needs_compiler
@of_the_model
@pytest.mark.parametrize("schedule", list(Schedule))
def test_training_gives_the_same_with_both_libraries(machines, monkeypatch, schedule):  # noqa: F811
    machines(schedule)
    expected = train(True)
    monkeypatch.setenv(SELECTED, "cublaslt")
    library = machines(schedule)._device._cublas._library
    np.testing.assert_array_equal(train(True), expected)
    searches = library.num_searches
    assert set(library.used) == {1}
    np.testing.assert_array_equal(train(True), expected)
    assert library.num_searches == searches, "cublasLt was asked for the same product again"


def product(size=4, at=0, alpha=1.0):
    """The sum of the elements of a product whose output begins `at` elements into memory."""
    x = to_device(np.ones((size, size), np.float32))
    out = to_device(np.zeros(size * size + at, np.float32))
    tensor.prod(out[at:].reshape(size, size), x, x, alpha=alpha)
    return float(fetch(out).sum())


@of_the_model
def test_cublaslt_is_asked_once_for_each_alignment(library):
    library.proposals = (Proposal(1.0),)
    for at, searches in ((0, 1), (1, 2), (2, 3), (3, 3), (4, 3), (5, 3)):
        assert product(at=at, alpha=0.5) == 32.0
        assert library.num_searches == searches


@of_the_model
def test_cublas_does_a_product_for_which_cublaslt_has_no_algorithm(library):
    unusable = Proposal(1.0, state=15), Proposal(1.0, workspace=1 << 30)
    for size, proposals in enumerate(((), unusable[:1], unusable[1:]), 3):
        library.proposals = proposals
        assert product(size) == size**3
    assert (library.used, library.num_searches) == ([], 3)


@of_the_model
def test_cublaslt_may_use_the_workspace_but_no_more(library):
    library.proposals = (
        Proposal(0.1),
        Proposal(0.9, workspace=33 << 20),
        Proposal(0.8, 1, 1 << 25),
    )
    assert product() == 64.0
    assert library.used == [2]


@needs_compiler
@of_the_model
@pytest.mark.parametrize("selected", ["cublas", "cublaslt"])
def test_a_product_that_fails_tells_why_and_leaves_nothing_behind(library, monkeypatch, selected):
    monkeypatch.setenv(SELECTED, selected)
    x, y = (to_device(np.ones((2, 2), np.float32)) for _ in range(2))
    alpha = tensor.dot(x, x)
    product_ = tensor.prod.bind(y, x, x, alpha=alpha)
    library.status = 14
    with pytest.raises(ProgramError, match="cuBLAS returned status 14"):
        product_()
    library.status = 3
    with pytest.raises(MemoryError, match="cuBLAS is out of memory"):
        product_()
    library.status = 0
    assert product(alpha=0.5) == 32.0


_CHOICES = """
import numpy as np, pytest
from support import model_cupy
with pytest.MonkeyPatch.context() as patch:
    model_cupy.install(patch)
    from nnet3tools.tensor.cuda.device import use_device
    from support.emulated_cuda import EmulatedDevice, to_device
    from support.model_cublas_lt import Proposal
    from nnet3tools import tensor
    with use_device(EmulatedDevice()) as device:
        library = device._device._cublas._library
        waves = np.random.default_rng(1)
        for size in range(1, 20):
            library.proposals = tuple(Proposal(w) for w in waves.uniform(0, 4, 10))
            x = to_device(np.ones((size, size), np.float32))
            tensor.prod(x, x.T, x, beta=1.0)
        print(library.used)
"""


@of_the_model
def test_two_processes_choose_the_same_algorithms():
    found = set()
    for seed in "12":
        path = os.pathsep.join([str(TESTS), *sys.path])
        environment = {SELECTED: "cublaslt", "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", _CHOICES], env={**os.environ, **environment}, text=True,
            capture_output=True, check=True,
        )  # fmt: skip
        found.add(done.stdout)
    assert len(found) == 1
    assert len(set(json.loads(found.pop()))) > 2
