"""Scratch memory is not shared by blocks that are in use."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor.recorder import Recorder
from nnet3tools.tensor.workspace import Workspace


def in_workspace() -> AbstractContextManager[Recorder]:
    return Recorder(scratch=Workspace())


@pytest.mark.parametrize("place", [nullcontext, in_workspace])
def test_buffers_in_use_are_never_given_out_again(
    place: Callable[[], AbstractContextManager[Recorder | None]],
) -> None:
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

    with place():
        for _ in range(30):
            nest(6)


def test_scratch_is_used_again_and_nested_scratch_is_other_memory() -> None:
    x = np.zeros(1, np.float32)
    with in_workspace():
        with tensor.scratch((10, 3), like=x) as a, tensor.scratch((10, 3), like=x) as b:
            assert not np.shares_memory(a, b)
            assert a.dtype == np.float32
            first = a
        with tensor.scratch(30, like=x) as again, tensor.scratch((0, 3), like=x) as none:
            assert again.size == 30
            assert none.shape == (0, 3)
            with tensor.scratch(25, like=x) as third:
                assert np.shares_memory(first, again)
                assert not np.shares_memory(again, third)
