"""Minibatches: what is merged with what, in which sizes and which order."""

import numpy as np
import pytest

from nnet3tools.errors import DataError, OptionError
from nnet3tools.io.compressed import CompressedMatrix
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.training.example import NnetExample, frames_io, structure_key
from nnet3tools.training.merging import MERGEABLE_FRAMES, ExampleMerger, merge_examples
from nnet3tools.training.minibatch_rules import ExampleMergingOptions, MinibatchRules
from support.training_helpers import example


def merge_all(examples, **options):
    written = []
    merger = ExampleMerger(
        MERGEABLE_FRAMES,
        ExampleMergingOptions(**options),
        lambda key, value: written.append((key, value)),
    )
    for one in examples:
        merger.accept(one)
    merger.finish()
    return written


def test_rows_and_sequences_of_a_minibatch():
    parts = [example(seed=i) for i in range(3)]
    merged = merge_examples(parts, compress_features=False)
    assert [io.name for io in merged.io] == ["input", "output"]
    for position in (0, 1):
        io = merged.io[position]
        sources = [part.io[position] for part in parts]
        np.testing.assert_array_equal(
            to_dense(io.features), np.concatenate([to_dense(s.features) for s in sources])
        )
        rows = len(sources[0].indexes)
        np.testing.assert_array_equal(io.indexes[:, 0], np.repeat([0, 1, 2], rows))
        np.testing.assert_array_equal(io.indexes[:, 1], np.tile(sources[0].indexes[:, 1], 3))
    assert isinstance(merged.io[1].features, SparseMatrix)


def test_merging_minibatches_again_keeps_sequences_apart():
    pair = merge_examples([example(seed=1), example(seed=2)], compress_features=False)
    merged = merge_examples([pair, pair, pair], compress_features=False)
    assert sorted(set(merged.io[0].indexes[:, 0])) == list(range(6))


def test_merging_does_not_change_its_input():
    one = example()
    before = one.io[0].indexes.copy()
    merge_examples([one, one], compress_features=False)
    np.testing.assert_array_equal(one.io[0].indexes, before)


def test_compress_leaves_posteriors_alone():
    merged = merge_examples([example(), example()], compress_features=True)
    assert isinstance(merged.io[0].features, CompressedMatrix)
    assert isinstance(merged.io[1].features, SparseMatrix)


def test_dimensions_must_agree():
    with pytest.raises(DataError, match=r"different dimensions \[3, 4\] of 'input'"):
        merge_examples([example(dim=3), example(dim=4)], compress_features=False)


def test_an_example_with_as_many_sequences_as_the_stride_is_refused():
    """The first example has n = 0 only; n = 1 of a later one would fall on the next example's n."""
    pair = merge_examples([example(seed=1), example(seed=2)], compress_features=False)
    with pytest.raises(DataError, match=r"'input' has n = 1: expected less than 1"):
        merge_examples([example(), pair], compress_features=False)


# -- sizes


@pytest.mark.parametrize(
    ("available", "expected"), [(128, 64), (64, 64), (63, 32), (31, 31), (16, 16), (15, 0)]
)
def test_largest_allowed_size_at_the_end(available, expected):
    rules = MinibatchRules("16:32,64")
    assert rules.minibatch_size(10, available, input_ended=True) == expected


def test_only_the_largest_size_before_the_end():
    rules = MinibatchRules("128:64,32".replace("128:64", "64:128"))
    assert rules.minibatch_size(10, 127, input_ended=False) == 0
    assert rules.minibatch_size(10, 128, input_ended=False) == 128


def test_rule_of_the_nearest_example_size():
    rules = MinibatchRules("128=64:128,256/256=32:64,128")
    assert rules.minibatch_size(150, 1000, input_ended=False) == 256
    assert rules.minibatch_size(230, 1000, input_ended=False) == 128
    assert rules.minibatch_size(192, 1000, input_ended=False) == 256  # a tie: the first


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-4", "8:4", "1:2:3", "4,", "8=4/8=2", "8=4/2", "8=4=2", "a=4"]
)
def test_rules_that_make_no_sense(text):
    with pytest.raises(OptionError, match="--minibatch-size"):
        MinibatchRules(text)


# -- streams


def test_only_the_same_structure_is_merged():
    examples = [example(num_frames=4 + i % 2, seed=i) for i in range(8)]
    written = merge_all(examples, minibatch_size="2")
    assert [key for key, _ in written] == [f"merged-{i}-2" for i in range(4)]
    for _, merged in written:
        assert sorted(set(merged.io[0].indexes[:, 0])) == [0, 1]
        assert len(merged.io[0].indexes) in (16, 18)


def test_left_over_examples():
    examples = [example(seed=i) for i in range(7)]
    assert [k for k, _ in merge_all(examples, minibatch_size="4")] == ["merged-0-4"]
    assert [k for k, _ in merge_all(examples, minibatch_size="4,1:2")] == [
        "merged-0-4",
        "merged-1-2",
        "merged-2-1",
    ]


def test_every_example_comes_out_once():
    examples = [example(num_frames=3 + i % 5, seed=i) for i in range(100)]
    written = merge_all(examples, minibatch_size="1:8")
    rows = np.concatenate([to_dense(m.io[0].features) for _, m in written])
    everything = np.concatenate([to_dense(e.io[0].features) for e in examples])
    assert len(rows) == len(everything)
    np.testing.assert_array_equal(
        np.sort(rows.view("f4,f4,f4").ravel()), np.sort(everything.view("f4,f4,f4").ravel())
    )


def test_structure_is_names_dims_and_indexes():
    one = example()
    assert structure_key(one) == structure_key(example(seed=5))
    assert structure_key(one) != structure_key(example(dim=4))
    assert structure_key(one) != structure_key(example(num_frames=5))
    renamed = NnetExample([frames_io("other", -2, one.io[0].features), one.io[1]])
    assert structure_key(one) != structure_key(renamed)


def test_statistics_are_logged(capsys):
    merge_all([example(seed=i) for i in range(7)], minibatch_size="4,2")
    log = capsys.readouterr().err
    assert "8={4->1,2->1,d=1}" in log.replace("2->1,4->1", "4->1,2->1")
    assert "Processed 7 egs of avg. size 8 into 2 minibatches, discarding 14.29% of egs." in log
    assert "Avg minibatch size was 3, #distinct types of egs/minibatches was 1/2" in log
