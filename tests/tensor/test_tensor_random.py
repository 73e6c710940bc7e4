"""The random generator against the C library's own functions and Kaldi's formulas."""

import ctypes
import math
import sys

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.draws import GlibcRand
from nnet3tools.errors import ProgramError
from nnet3tools.tensor import random
from nnet3tools.tensor.cpu import choice, jobs
from nnet3tools.tensor.cpu.choice import CpuKernels
from nnet3tools.tensor.cpu.library import library
from nnet3tools.tensor.operators.random.cpu import KERNEL, draw_uniform
from support.native_kernels import needs_compiler

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with glibc")


@pytest.fixture
def libc():
    return ctypes.CDLL("libc.so.6")


@pytest.mark.parametrize("seed", [0, 1, 5, 123456789, 2**31 + 5, 2**32 - 1])
def test_rand_is_glibcs(libc, seed):
    libc.srand(ctypes.c_uint(seed))
    mine = GlibcRand(seed)
    assert [mine.rand() for _ in range(400)] == [libc.rand() for _ in range(400)]


def uniforms(libc, count):
    """What Kaldi's RandUniform gives from a fresh RandomState."""
    state = ctypes.c_uint(libc.rand() + 27437)
    draws = [libc.rand_r(ctypes.byref(state)) for _ in range(count)]
    return ((np.array(draws) + 1.0) / (2147483647 + 2.0)).astype(np.float32)


def test_uniform_arrays_are_kaldis(libc):
    libc.srand(7)
    random.seed(7)
    for shape in ((5, 9001), (3,), (0, 4)):
        out = np.empty(shape, np.float32)
        random.uniform(out)
        assert np.array_equal(out.ravel(), uniforms(libc, out.size))


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_code_draws_the_same_bits(libc, threads, monkeypatch):
    monkeypatch.setattr(choice, "_chosen", CpuKernels.NATIVE)
    monkeypatch.setattr(jobs, "num_threads", lambda: threads)
    library.want([KERNEL])
    assert library.addresses([KERNEL.name])
    for count in (1, 15, 17, 4096, 4097, 300_001):
        libc.srand(5)
        out = np.full(count + 1, -1.0, np.float32)
        assert draw_uniform(out[:count], libc.rand() + 27437)
        libc.srand(5)
        assert np.array_equal(out[:count], uniforms(libc, count))
        assert out[count] == -1.0


def test_normal_arrays_are_kaldis(libc):
    libc.srand(7)
    random.seed(7)
    for rows, columns in ((40, 7), (3, 8), (1, 1), (0, 3), (2, 0)):
        out = np.empty((rows, columns), np.float64)
        random.normal(out)
        width = columns + columns % 2
        u = uniforms(libc, rows * width).astype(float).reshape(rows, width)
        radius, angle = np.sqrt(-2 * np.log(u[:, ::2])), 2 * math.pi * u[:, 1::2]
        expected = np.empty((rows, width))
        expected[:, ::2], expected[:, 1::2] = radius * np.cos(angle), radius * np.sin(angle)
        np.testing.assert_allclose(out, expected[:, :columns], rtol=1e-5, atol=2e-6)


def test_choices_follow_kaldis_formulas(libc):
    libc.srand(3)
    random.seed(3)
    for low, high in ((0, 9), (-5, 5), (4, 4), (0, 2**30)):
        expected = low if low == high else low + libc.rand() % (high + 1 - low)
        assert random.rand_int(low, high) == expected
    for p in (0.3, 0.5, 0.999):
        assert random.with_prob(p) == (libc.rand() < 2147483648.0 * np.float32(p))
    before = random.get_state()
    assert not random.with_prob(0.0)
    assert random.with_prob(1.0)
    assert random.get_state() == before
    tiny = 1e-9
    hits = sum(random.with_prob(tiny) for _ in range(1000))
    assert hits == 0
    for call in (lambda: random.with_prob(-0.1), lambda: random.rand_int(2, 1)):
        with pytest.raises(ProgramError):
            call()


def test_state_can_be_kept_and_restored():
    random.seed(1)
    random.rand()
    state = random.get_state()
    first = np.empty(5, np.float32), random.rand_int(0, 1000)
    tensor.random.normal(first[0])
    random.set_state(state)
    again = np.empty(5, np.float32), random.rand_int(0, 1000)
    tensor.random.normal(again[0])
    assert np.array_equal(first[0], again[0])
    assert first[1] == again[1]
