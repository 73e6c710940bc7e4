"""BackpropTruncationComponent: which gradients are clipped or zeroed, and how they are counted."""

import numpy as np
import pytest

from nnet3tools.nnet.components.base import BackpropArgs
from support.harness import check_round_trip, from_bytes, make, rows_of, to_bytes
from support.time_aware import check_precomputed, grid

OPTIONS = "dim=4 clipping-threshold=2 zeroing-threshold=1 zeroing-interval=5 recurrence-interval=3"
INDEXES = grid(3, range(-7, 12))


def truncation(options: str = OPTIONS):
    return make(f"type=BackpropTruncationComponent {options}")


def test_boundaries_are_multiples_of_the_interval_shifted_by_n() -> None:
    indexes = truncation().precompute_indexes(INDEXES, INDEXES, True)
    for (n, t, _), zeroing in zip(INDEXES.tolist(), indexes.zeroing, strict=True):
        assert zeroing == (-1 if any((s - n) % 5 == 0 for s in range(t - 2, t + 1)) else 0)
    assert indexes.zeroing_sum == -indexes.zeroing.sum()
    check_precomputed(indexes)


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("thresholds", [(2.0, 1.0), (2.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_rows_are_clipped_zeroed_and_counted(scale: float, thresholds: tuple[float, float]) -> None:
    clip, zero = thresholds
    component = truncation(
        f"dim=4 scale={scale} clipping-threshold={clip} zeroing-threshold={zero} "
        "zeroing-interval=5 recurrence-interval=1"
    )
    rows = rows_of(component, 0, INDEXES, INDEXES)
    rng = np.random.default_rng(0)
    dy = (rng.normal(size=(len(INDEXES), 4)) * rng.choice([0.1, 1, 9], (len(INDEXES), 1))).astype(
        np.float32
    )
    expected, clipped, zeroed = scale * dy.astype(np.float64), 0, 0
    for row, zeroing in zip(expected, rows.indexes.zeroing, strict=True):
        norm = np.linalg.norm(row)
        if clip and norm > clip:
            row *= clip / norm
            clipped += 1
        if zero and norm > zero and zeroing:
            row[:] = 0.0
            zeroed += 1
    for in_place in (False, True):
        stats, dx = truncation(), dy.copy() if in_place else np.full_like(dy, np.nan)
        component.backprop(
            BackpropArgs("", rows.indexes, None, None, dx if in_place else dy, None, stats, dx)
        )
        np.testing.assert_allclose(dx, expected, 1e-5, 1e-6)
        assert (stats.num_clipped, stats.count) == (clipped, len(dy))
        assert stats.num_zeroed == zeroed
        assert stats.count_zeroing_boundaries == rows.indexes.zeroing_sum
    y = np.empty_like(dy)
    component.propagate(rows.indexes, dy, y)
    np.testing.assert_allclose(y, scale * dy)


def test_statistics_in_info_and_files() -> None:
    component = truncation()
    check_round_trip(component)
    component.count, component.num_clipped = 1234.0, 100.0
    component.count_zeroing_boundaries, component.num_zeroed = 8.0, 2.0
    check_round_trip(component)
    assert component.info() == (
        "BackpropTruncationComponent, dim=4, scale=1, count=1.23e+03, recurrence-interval=3, "
        "clipping-threshold=2, clipped-proportion=0.0810373, zeroing-threshold=1, "
        "zeroing-interval=5, zeroed-proportion=0.25, count-zeroing-boundaries=8"
    )
    other = component.copy()
    other.scale(0.5)
    other.add(0.25, component)
    assert (other.count, other.num_zeroed) == (925.5, 1.5)
    other.zero_stats()
    assert other.count == other.num_clipped == other.count_zeroing_boundaries == 0.0


def test_files_without_a_scale_have_scale_1() -> None:
    text = to_bytes(truncation("dim=4"), False)
    old = text.replace(b"<Scale> 1 ", b"")
    assert old != text
    assert to_bytes(from_bytes(old, False), False) == text
