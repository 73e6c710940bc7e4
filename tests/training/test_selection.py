"""Frame selection, context reduction, subsets and orders."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.training.example import NnetExample, frames_io
from nnet3tools.training.merging import merge_examples
from nnet3tools.training.orders import draw_count, random_subset, shuffle_in_buffer, shuffled
from nnet3tools.training.selection import (
    FrameSelection,
    rename_output,
    scale_supervision,
    shift_times,
)
from support.training_helpers import example


def times(eg: NnetExample, name: str) -> list[int]:
    return next(io for io in eg.io if io.name == name).indexes[:, 1].tolist()


def test_one_frame_with_less_context():
    eg = example(num_frames=6, context=4)
    selected = FrameSelection("2", left_context=3, right_context=1).apply(eg, "utt")
    assert times(selected, "output") == [2]
    assert times(selected, "input") == [-1, 0, 1, 2, 3]
    np.testing.assert_array_equal(
        to_dense(selected.io[0].features), to_dense(eg.io[0].features)[3:8]
    )
    np.testing.assert_array_equal(
        to_dense(selected.io[1].features), to_dense(eg.io[1].features)[2:3]
    )


def test_frame_that_is_not_there():
    assert FrameSelection("6").apply(example(num_frames=6), "utt") is None


def test_random_frame_is_one_of_them():
    eg = example(num_frames=6)
    selection = FrameSelection("random")
    drawn = {times(selection.apply(eg, "utt"), "output")[0] for _ in range(100)}
    assert drawn == set(range(6))


def test_shift_leaves_ivectors():
    eg = example()
    eg.io.append(frames_io("ivector", 0, np.ones((1, 2), np.float32)))
    shifted = FrameSelection(frame_shift=3).apply(eg, "utt")
    assert times(shifted, "input")[0] == 1
    assert times(shifted, "output")[0] == 3
    assert times(shifted, "ivector") == [0]
    assert times(eg, "input")[0] == -2
    assert shift_times(eg, 0) is eg


def test_missing_context_warns_once(capsys):
    selection = FrameSelection(left_context=9)
    for _ in range(3):
        selection.apply(example(), "utt")
    assert capsys.readouterr().err.count("--left-context=9") == 1


def test_merged_example_is_refused():
    merged = merge_examples([example(), example()], compress_features=False)
    with pytest.raises(DataError, match="'utt7' is a merged one"):
        FrameSelection("0").apply(merged, "utt7")


def test_example_without_output_is_refused():
    eg = NnetExample(example().io[:1])
    with pytest.raises(DataError, match="'utt7' has no 'output'"):
        FrameSelection("0").apply(eg, "utt7")
    with pytest.raises(DataError, match="'utt7' has no 'output'"):
        rename_output(eg, "utt7", "output-1")
    with pytest.raises(DataError, match="'utt7' has no 'output'"):
        scale_supervision(eg, "utt7", 2.0)


def test_bad_frame_option():
    with pytest.raises(OptionError, match="--frame=middle"):
        FrameSelection("middle")


def test_weight_and_name():
    eg = rename_output(scale_supervision(example(), "a", 0.25), "a", "output-3")
    assert [io.name for io in eg.io] == ["input", "output-3"]
    np.testing.assert_allclose(
        to_dense(eg.io[1].features), 0.25 * to_dense(example().io[1].features)
    )


def test_draw_count_has_the_right_mean():
    assert draw_count(2.0) == 2
    draws = [draw_count(1.3) for _ in range(4000)]
    assert set(draws) == {1, 2}
    assert np.mean(draws) == pytest.approx(1.3, abs=0.03)


def keyed(count: int) -> list[tuple[str, NnetExample]]:
    return [(str(i), NnetExample()) for i in range(count)]


def keys(pairs) -> list[str]:
    return [key for key, _ in pairs]


def test_shuffles_keep_everything_and_repeat():
    for make in (
        lambda: shuffled(keyed(50), 4),
        lambda: list(shuffle_in_buffer(keyed(50), 7)),
    ):
        tensor.random.seed(1)
        first = keys(make())
        tensor.random.seed(1)
        assert keys(make()) == first
        assert sorted(first, key=int) == keys(keyed(50))
        assert first != keys(keyed(50))


def test_subset_is_uniform():
    counts = np.zeros(10)
    for _ in range(2000):
        chosen, num_read = random_subset(keyed(10), 3, 0, randomize_order=False)
        assert num_read == 10
        assert len(chosen) == 3
        counts[[int(key) for key in keys(chosen)]] += 1
    assert counts.min() > 500
    assert counts.max() < 700


def test_subset_larger_than_the_input():
    chosen, _ = random_subset(keyed(4), 10, 0, randomize_order=False)
    assert keys(chosen) == keys(keyed(4))
