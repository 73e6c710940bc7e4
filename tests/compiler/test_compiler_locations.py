"""Splitting sums of rows into columns: nothing lost, nothing doubled, columns as wanted."""

from collections import Counter

import numpy as np
import pytest

from nnet3tools.compiler.locations import (
    Column,
    push_left,
    reversible_columns,
    split_locations,
)


def random_sum(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Submatrices and rows, (rows, terms), with padding, few distinct places, and repeats."""
    num_rows, width = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    if rng.random() < 0.5:
        submatrices = rng.integers(3, 6, (num_rows, width))
    else:
        submatrices = np.broadcast_to(rng.integers(3, 9, width), (num_rows, width)).copy()
    rows = np.sort(rng.integers(0, 6, (num_rows, width)), axis=0)
    padding = rng.random((num_rows, width)) < rng.choice([0.0, 0.3])
    submatrices[padding] = rows[padding] = -1
    return push_left(submatrices.astype(np.int32), rows.astype(np.int32))


def terms_of(submatrices: np.ndarray, rows: np.ndarray) -> list[Counter]:
    """The multiset of locations of each row."""
    return [
        Counter((s, r) for s, r in zip(*pair, strict=True) if s >= 0)
        for pair in zip(submatrices.tolist(), rows.tolist(), strict=True)
    ]


def check_columns(columns: list[Column], submatrices: np.ndarray, rows: np.ndarray) -> None:
    expected = terms_of(submatrices, rows)
    found: list[Counter] = [Counter() for _ in expected]
    for column in columns:
        named = set(column.submatrices.tolist()) - {-1}
        assert (len(named) > 1) == (column.submatrix == 0)
        if column.submatrix:
            assert named <= {column.submatrix}
        assert ((column.submatrices < 0) == (column.rows < 0)).all()
        for counter, s, r in zip(found, column.submatrices, column.rows, strict=True):
            if s >= 0:
                counter[int(s), int(r)] += 1
    assert found == expected


@pytest.mark.parametrize("seed", range(200))
def test_columns_hold_each_term_once(seed: int) -> None:
    submatrices, rows = random_sum(np.random.default_rng(seed))
    check_columns(split_locations(submatrices, rows), submatrices, rows)


def split_backward(submatrices: np.ndarray, rows: np.ndarray) -> list[Column]:
    """As the commands of the backward direction split: columns, then reversible parts."""
    columns = split_locations(submatrices, rows)
    return [part for column in columns for part in reversible_columns(column)]


@pytest.mark.parametrize("seed", range(200))
def test_backward_columns_can_be_reversed(seed: int) -> None:
    submatrices, rows = random_sum(np.random.default_rng(seed))
    columns = split_backward(submatrices, rows)
    check_columns(columns, submatrices, rows)
    for column in columns:
        places = list(zip(column.submatrices.tolist(), column.rows.tolist(), strict=True))
        runs = [p for i, p in enumerate(places) if i == 0 or places[i - 1] != p]
        present = [p for p in (runs if column.submatrix else places) if p[0] >= 0]
        assert len(present) == len(set(present))


def test_columns_of_padding_are_dropped_and_terms_move_left() -> None:
    submatrices, rows = np.array([[-1, -1, 4], [5, -1, 4]], np.int32), np.full((2, 3), 2, np.int32)
    submatrices, rows = push_left(submatrices, rows)
    assert submatrices.tolist() == [[4, -1], [5, 4]]
    assert rows.tolist() == [[2, -1], [2, 2]]


def test_a_submatrix_in_most_rows_gets_a_column_of_its_own() -> None:
    submatrices = np.array([[4, 7], [7, 4], [4, 7], [4, 8]], np.int32)
    rows = np.arange(8, dtype=np.int32).reshape(4, 2)
    columns = split_locations(submatrices, rows)
    assert [c.submatrix for c in columns] == [7, 4, 8]
    assert columns[0].rows.tolist() == [1, 2, 5, -1]
    assert columns[1].rows.tolist() == [0, 3, 4, 6]
    assert columns[2].rows.tolist() == [-1, -1, -1, 7]


def test_a_broken_run_is_split_for_the_backward_direction() -> None:
    # Kaldi's own example of EnsureContiguousProperty.
    rows = np.array([[-1], [1], [1], [1], [2], [2], [1], [1]], np.int32)
    submatrices = np.where(rows < 0, -1, 5).astype(np.int32)
    columns = split_backward(submatrices, rows)
    assert [c.rows.tolist() for c in columns] == [
        [-1, 1, 1, 1, 2, 2, -1, -1],
        [-1, -1, -1, -1, -1, -1, 1, 1],
    ]


def test_no_terms_give_no_columns() -> None:
    empty = np.empty((3, 0), np.int32)
    assert split_locations(empty, empty) == []
    padding = push_left(np.full((3, 2), -1, np.int32), np.full((3, 2), -1, np.int32))
    assert split_backward(*padding) == []
