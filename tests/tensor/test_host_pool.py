"""Scratch memory: never shared, and no more of it than was ever in use at once."""

import numpy as np

from nnet3tools import tensor
from nnet3tools.tensor.host_memory import HostPool

MB = 1 << 20


def test_buffers_in_use_are_never_given_out_again() -> None:
    rng, like = np.random.default_rng(0), np.empty(1, np.float32)

    def nest(depth: int) -> None:
        shape = tuple(int(n) for n in rng.integers(0, 400, 2))
        with tensor.scratch(shape, like) as a, tensor.scratch((3, 5), like, np.float64) as b:
            assert a.shape == shape
            assert (a.dtype, b.dtype) == (np.float32, np.float64)
            a.fill(depth)
            b.fill(depth)
            if depth:
                nest(depth - 1)
            assert (a == depth).all()
            assert (b == depth).all()

    for _ in range(30):
        nest(6)


def test_layers_of_different_sizes_share_their_memory() -> None:
    pool = HostPool()
    for inner, outer in ((1, 2), (3, 9), (2, 5), (8, 8), (1, 4)) * 3:
        first = pool.take(outer * MB + 4)
        second = pool.take(inner * MB + 4)
        assert first.size >= outer * MB + 4
        assert second.size >= inner * MB + 4
        pool.give_back(second)
        pool.give_back(first)
    assert pool.num_bytes <= 18 * MB


def test_programs_meet_the_same_memory_in_every_run() -> None:
    pool = HostPool()
    addresses = []
    for _ in range(4):
        now = []
        for sizes in ((9, 3, 1), (4, 4, 0.01), (10, 1)):
            taken = [pool.take(int(size * MB)) for size in sizes]
            now += [buffer.ctypes.data for buffer in taken]
            for buffer in reversed(taken):
                pool.give_back(buffer)
        addresses.append(now)
    assert addresses[2] == addresses[3]
