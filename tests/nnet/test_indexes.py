"""Indexes of recurrent connections that reach across the edges of a chunk."""

import numpy as np
import pytest

from nnet3tools.nnet.indexes import NO_TIME, make_indexes, pack, repeated_beyond, unpack


def keys(*times: int) -> np.ndarray:
    return np.sort(pack(make_indexes(np.arange(2)[:, None], times).reshape(-1, 3)))


def times_beyond(
    known: list[int], new: list[int], first: int, last: int, most: int = 9
) -> list[int]:
    beyond = unpack(repeated_beyond(keys(*known), keys(*new), first, last, most))
    assert np.array_equal(pack(beyond), keys(*dict.fromkeys(beyond[:, 1].tolist())))
    return sorted(set(beyond[:, 1].tolist()))


@pytest.mark.parametrize(
    ("known", "new", "expected"),
    [
        ([0, 1, 2], [-1], [-7, -6, -5, -4, -3, -2]),
        ([0, 1, 2], [-3, -2, -1], [-9, -8, -7, -6, -5, -4]),
        ([0, 1, 2], [5], [8, 11, 14]),
        ([0, 3], [-3], [-9, -6]),
        ([0, 1], [-3, 4], []),  # beyond both edges
        ([0, 4], [2], []),
        ([0, 1], [-5], []),  # nothing is given before the chunk
        ([], [1], []),
    ],
)
def test_repeated_until_beyond_the_inputs(
    known: list[int], new: list[int], expected: list[int]
) -> None:
    assert times_beyond(known, new, -5, 10) == expected


def test_gaps_of_what_is_new_are_repeated() -> None:
    assert times_beyond([0], [-3, -2], -6, 0) == [-12, -11, -9, -8, -6, -5]


def test_indexes_without_a_time_and_at_the_ends_of_time_are_left_alone() -> None:
    assert times_beyond([0], [NO_TIME], -5, 5) == []
    begin = -(1 << 27) + 2
    assert times_beyond([begin + 1], [begin], begin - 5, 0) == [begin - 1]


def test_far_frames_are_not_gone_to_at_once() -> None:
    assert times_beyond([0], [-1], NO_TIME, 0, most=3) == [-4, -3, -2]
    assert times_beyond([0], [1], 0, 1 << 30, most=3) == [2, 3, 4]
