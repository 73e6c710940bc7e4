"""GeneralDropout and SpecAugmentTimeMask: which rows share a mask, share of zeros, test mode."""

import io

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import DataError, ProgramError
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.base import BackpropArgs, Properties
from nnet3tools.nnet.components.registry import read_precomputed_indexes
from nnet3tools.nnet.indexes import make_indexes
from support.harness import backward, check_round_trip, forward, make, rows_of
from support.time_aware import check_precomputed, grid


def dropout(options: str):
    return make(f"type=GeneralDropoutComponent {options}")


def time_mask(options: str):
    return make(f"type=SpecAugmentTimeMaskComponent {options}")


def mask_of(component, indexes: np.ndarray) -> np.ndarray:
    """The factors that a forward pass applies; fails if the backward pass uses others."""
    rows = rows_of(component, 0, indexes, indexes)
    check_precomputed(rows.indexes)
    x = np.ones((len(indexes), component.input_dim), np.float32)
    y, memo = forward(component, x, rows)
    assert np.array_equal(x, np.ones_like(x))
    dy = np.full_like(x, 2.0)
    assert np.array_equal(backward(component, x, y, memo, dy, rows, None), 2.0 * y)
    both = dy.copy()
    component.backprop(BackpropArgs("", rows.indexes, None, None, both, memo, None, both))
    assert np.array_equal(both, 2.0 * y)
    return y


# -- GeneralDropout


def test_one_mask_a_sequence() -> None:
    indexes = grid(50, range(4))
    mask = mask_of(dropout("dim=40 dropout-proportion=0.3"), indexes).reshape(4, 50, 40)
    assert (mask == mask[0]).all()
    assert set(np.unique(mask)) == {0.0, np.float32(1.0 / 0.7)}
    assert abs((mask[0] == 0).mean() - 0.3) < 0.05
    assert len(np.unique(mask[0], axis=0)) == 50


def test_a_new_mask_each_time_period() -> None:
    indexes = np.random.default_rng(0).permutation(grid(3, range(-6, 6)))
    mask = mask_of(dropout("dim=30 time-period=4"), indexes)
    kept: dict[tuple[int, int], np.ndarray] = {}
    for (n, t, _), row in zip(indexes.tolist(), mask, strict=True):
        assert np.array_equal(kept.setdefault((n, t // 4), row), row)
    assert len(np.unique(list(kept.values()), axis=0)) == len(kept) == 12


def test_mask_rows_are_numbered_as_they_first_appear() -> None:
    indexes = make_indexes([5, 2, 5, 0, 2], [0, 0, 1, 0, 1])
    made = dropout("dim=6").precompute_indexes(indexes, indexes, True)
    assert (made.num_mask_rows, made.rows.tolist()) == (3, [0, 1, 0, 2, 1])
    made = dropout("dim=6 block-dim=3").precompute_indexes(indexes, indexes, True)
    assert (made.num_mask_rows, made.rows.tolist()) == (6, [0, 0, 1, 1, 0, 0, 2, 2, 1, 1])


def test_blocks_share_the_mask_and_ask_for_contiguous_rows() -> None:
    component = dropout("dim=12 block-dim=4")
    contiguous = Properties.INPUT_CONTIGUOUS | Properties.OUTPUT_CONTIGUOUS
    assert component.properties & contiguous == contiguous
    assert not dropout("dim=12").properties & contiguous
    mask = mask_of(component, grid(30, range(2))).reshape(60, 3, 4)
    assert (mask == mask[:, :1]).all()


def test_continuous_masks_are_uniform_around_1() -> None:
    mask = mask_of(dropout("dim=100 continuous=true dropout-proportion=0.2"), grid(80, [0]))
    assert mask.min() >= np.float32(0.6)
    assert mask.max() <= np.float32(1.4)
    assert abs(mask.mean() - 1.0) < 0.01
    assert abs(mask.std() - 0.8 / np.sqrt(12)) < 0.01


def bands(row: np.ndarray) -> int:
    """Number of runs of zeros in a row whose ends are joined to a circle."""
    return int(((row == 0) & (np.roll(row, 1) != 0)).sum())


@pytest.mark.parametrize("regions", [1, 3])
def test_specaugment_zeroes_a_band_of_columns(regions: int) -> None:
    component = dropout(f"dim=41 specaugment-max-proportion=0.5 specaugment-max-regions={regions}")
    mask = mask_of(component, grid(400, [0]))
    assert set(np.unique(mask)) == {0.0, 1.0}
    widths = (mask == 0).sum(axis=1)
    assert set(widths) == set(range(22))  # up to int(41 * 0.5 + 0.5)
    runs = [bands(row) for row in mask]
    assert max(runs) == 1 if regions == 1 else 1 < max(runs) <= 5
    assert (mask == 0).any(axis=0).all()


@pytest.mark.parametrize("options", ["test-mode=true", "dropout-proportion=0"])
def test_nothing_is_dropped_in_test_mode_or_with_proportion_0(options: str) -> None:
    component = dropout(f"dim=5 {options}")
    indexes = grid(3, range(2))
    rows = rows_of(component, 0, indexes, indexes)
    x = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    y, memo = forward(component, x, rows)
    assert memo is None
    assert np.array_equal(y, x)
    assert np.array_equal(backward(component, x, y, memo, x, rows, None), x)


def test_the_seed_decides_the_mask() -> None:
    component, indexes = dropout("dim=20"), grid(5, [0])
    rows = rows_of(component, 0, indexes, indexes)
    x, y = np.ones((5, 20), np.float32), np.empty((5, 20), np.float32)
    masks = []
    for seed in (1, 2, 1):
        tensor.random.seed(seed)
        component.propagate(rows.indexes, x, y)
        masks.append(y.copy())
    assert np.array_equal(masks[0], masks[2])
    assert not np.array_equal(masks[0], masks[1])


@pytest.mark.parametrize(
    "component",
    [
        dropout("dim=6"),
        dropout("dim=6 block-dim=2 time-period=10 continuous=true test-mode=true"),
        dropout("dim=6 specaugment-max-proportion=0.25"),
        dropout("dim=6 specaugment-max-proportion=0.25 specaugment-max-regions=2"),
        time_mask("dim=6 zeroed-proportion=0.1 time-mask-max-frames=4"),
    ],
)
def test_files(component) -> None:
    check_round_trip(component)
    component.test_mode = True
    check_round_trip(component)


def test_info() -> None:
    component = dropout("dim=6 block-dim=2 time-period=10 specaugment-max-proportion=0.25")
    assert component.info() == (
        "GeneralDropoutComponent, dim=6, block-dim=2, dropout-proportion=0.5, "
        "specaugment-max-proportion=0.25, specaugment-max-regions=1, time-period=10"
    )
    assert time_mask("dim=6").info() == (
        "SpecAugmentTimeMaskComponent, dim=6, zeroed-proportion=0.25, time-mask-max-frames=10"
    )


# -- SpecAugmentTimeMask


def runs_of(values: np.ndarray) -> list[tuple[float, int]]:
    """The (value, length) of each run of equal values."""
    starts = np.flatnonzero(np.diff(values, prepend=-1.0))
    lengths = np.diff(np.append(starts, len(values)))
    return list(zip(values[starts].tolist(), lengths.tolist(), strict=True))


def test_time_masks_zero_stretches_of_whole_frames() -> None:
    indexes = np.random.default_rng(0).permutation(grid(40, range(200)))
    component = time_mask("dim=3 zeroed-proportion=0.25 time-mask-max-frames=6")
    mask = mask_of(component, indexes)
    assert (mask == mask[:, :1]).all()
    order = np.lexsort((indexes[:, 1], indexes[:, 0]))
    by_sequence = mask[order, 0].reshape(40, 200)
    assert set(np.unique(by_sequence)) == {0.0, 1.0}
    assert abs((by_sequence == 0).mean() - 0.25) < 0.04
    runs = [run for row in by_sequence for run in runs_of(row)]
    assert max(length for value, length in runs if value == 0) == 6
    assert max(length for value, length in runs if value == 1) == 18
    # As in Kaldi, a sequence starts with kept frames with probability zeroed-proportion only.
    assert 0.05 < by_sequence[:, 0].mean() < 0.5
    assert len(np.unique(by_sequence, axis=0)) == 40


def test_sequences_of_different_lengths() -> None:
    indexes = np.concatenate([grid(1, range(7)), make_indexes(4, [3, 1]), make_indexes(9, 5)])
    component = time_mask("dim=2")
    made = component.precompute_indexes(indexes, indexes, True)
    assert made.offsets.tolist() == [0, 7, 9, 10]
    assert made.rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 7, 9]
    assert set(np.unique(mask_of(component, indexes))) <= {0.0, 1.0}


def test_time_mask_in_test_mode() -> None:
    component = time_mask("dim=2")
    component.test_mode = True
    assert (mask_of(component, grid(3, range(5))) == 1.0).all()


# -- bad input


def test_bad_files() -> None:
    name = "GeneralDropoutComponentPrecomputedIndexes"
    text = f"<{name}> <NumMaskRows> 2 <Indexes> [ 0 2 ]\n</{name}> ".encode()
    with pytest.raises(DataError, match="does not exist"):
        read_precomputed_indexes(Reader(io.BytesIO(text), "test", False))
    name = "SpecAugmentTimeMaskComponentPrecomputedIndexes"
    text = f"<{name}> <Indexes> 2 [ 0 2 ]\n[ 2 ]\n</{name}> ".encode()
    with pytest.raises(DataError, match="each row once"):
        read_precomputed_indexes(Reader(io.BytesIO(text), "test", False))


@pytest.mark.parametrize("component", [dropout("dim=2"), time_mask("dim=2")])
def test_other_outputs_than_inputs_are_a_bug(component) -> None:
    with pytest.raises(ProgramError, match=component.type_name):
        component.precompute_indexes(grid(1, range(3)), grid(1, range(2)), True)
