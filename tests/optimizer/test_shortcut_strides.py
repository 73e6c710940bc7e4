"""The strides in n of many arrays at once are those of each by itself."""

import numpy as np
import pytest

from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.optimizer.shortcut import find_n_stride, find_n_strides, with_num_sequences


def regular(rng: np.random.Generator, stride: int, blocks: int) -> np.ndarray:
    """Rows for two sequences with this stride."""
    t = rng.integers(-3, 4, (blocks, 1, stride))
    return make_indexes(np.arange(2)[:, None], np.broadcast_to(t, (blocks, 2, stride)))


@pytest.mark.parametrize("seed", range(20))
def test_as_of_each_array_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    indexes = [regular(rng, int(rng.integers(1, 4)), int(rng.integers(1, 4))) for _ in range(30)]
    for rows in indexes[::3]:
        rows[rng.integers(len(rows)), rng.integers(3)] += 1
    indexes += [np.empty((0, 3), np.int32), np.zeros((3, 3), np.int32), np.zeros((1, 3), np.int32)]
    nodes = [np.full(len(rows), 5, np.int32) for rows in indexes]
    for of_rows in nodes[:30:4]:
        of_rows[rng.integers(len(of_rows))] = 6
    strides = find_n_strides(indexes, nodes)
    assert strides == [find_n_stride(i, n) for i, n in zip(indexes, nodes, strict=True)]
    assert len(set(strides)) > 2


def test_an_array_for_more_sequences_has_its_stride_too() -> None:
    rng = np.random.default_rng(0)
    two = regular(rng, 3, 2)
    three = with_num_sequences(two, 3, 3)
    nodes = [np.zeros(len(rows), np.int32) for rows in (two, three)]
    assert find_n_strides([two, three], nodes) == [3, 3]
