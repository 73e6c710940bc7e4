"""Cutting utterances: every output once, with the context it needs, in as few shapes as can be."""

import numpy as np
import pytest

from nnet3tools.errors import DataError, OptionError
from nnet3tools.executor.chunks import (
    ChunkShape,
    Ivectors,
    chunks_for_batches,
    chunks_of_utterance,
)
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.graph.context import NnetContext

CONTEXT = NnetContext(2, 3, 1)


def test_chunks_follow_each_other_and_the_last_is_short():
    options = SimpleComputationOptions(frame_subsampling_factor=3)
    chunks = chunks_of_utterance(25, 4, CONTEXT, options, False)
    assert [(c.first_output, c.num_used) for c in chunks] == [(0, 4), (4, 4), (8, 1)]
    assert [c.first_frame for c in chunks] == [-2, 10, 22]
    # From 2 frames before the first output's to 3 after the last output's.
    assert [c.shape.num_inputs for c in chunks] == [2 + 10 + 3, 2 + 10 + 3, 2 + 1 + 3]
    assert [c.middle_frame for c in chunks] == [4, 16, 24]


def test_extra_context_differs_at_the_ends_if_asked_to():
    options = SimpleComputationOptions(
        extra_left_context=10,
        extra_right_context=20,
        extra_left_context_initial=0,
        extra_right_context_final=1,
    )
    first, middle, last = chunks_of_utterance(12, 5, CONTEXT, options, True)
    assert (first.shape.first_input_t, first.shape.num_inputs) == (-2, 2 + 5 + 3 + 20)
    assert (middle.shape.first_input_t, middle.shape.num_inputs) == (-12, 12 + 5 + 23)
    assert (last.shape.first_input_t, last.shape.num_inputs) == (-12, 12 + 2 + 3 + 1)
    (only,) = chunks_of_utterance(3, 5, CONTEXT, options, True)
    assert (only.shape.first_input_t, only.shape.num_inputs) == (-2, 2 + 3 + 3 + 1)


def test_frames_beyond_the_utterance_repeat_its_ends():
    options = SimpleComputationOptions()
    first, middle, last = chunks_of_utterance(9, 3, CONTEXT, options, False)
    np.testing.assert_array_equal(first.rows(9), [0, 0, 0, 1, 2, 3, 4, 5])
    assert middle.rows(9) == slice(1, 9)
    np.testing.assert_array_equal(last.rows(9), [4, 5, 6, 7, 8, 8, 8, 8])


def test_batches_have_chunks_of_one_length_and_the_last_ends_with_the_utterance():
    options = BatchComputationOptions(frame_subsampling_factor=2)
    chunks = chunks_for_batches(21, 4, CONTEXT, options, False)
    assert {c.shape for c in chunks} == {ChunkShape(-2, 2 + 8 + 3, 4, 2)}
    assert [(c.first_output, c.num_unused, c.num_used) for c in chunks] == [
        (0, 0, 4),
        (4, 0, 4),
        (8, 1, 3),
    ]
    assert chunks[-1].first_frame == 7 * 2 - 2
    (short,) = chunks_for_batches(3, 4, CONTEXT, options, False)
    assert (short.shape, short.num_used) == (chunks[0].shape, 2)


def test_batches_are_exact_at_the_end_only_if_asked_to():
    options = BatchComputationOptions(ensure_exact_final_context=True)
    (short,) = chunks_for_batches(3, 4, CONTEXT, options, False)
    assert (short.shape.num_outputs, short.num_used) == (3, 3)


def test_edges_are_chunks_whose_context_differs():
    options = BatchComputationOptions(extra_left_context=5, extra_left_context_initial=0)
    chunks = chunks_for_batches(12, 4, CONTEXT, options, False)
    assert [c.is_edge for c in chunks] == [True, False, False]


def test_online_ivector_is_that_of_the_chunks_middle():
    options = SimpleComputationOptions()
    chunks = chunks_of_utterance(100, 20, CONTEXT, options, True)

    def online(count):
        return Ivectors(np.arange(count, dtype=np.float32)[:, None], 10)

    assert [online(10).of_chunk(c).item() for c in chunks] == [0, 2, 4, 6, 8]
    assert online(5).of_chunk(chunks[-1]).item() == 4
    with pytest.raises(DataError, match=r"no i-vector for frame 89.*mismatched --online-ivector"):
        online(3).of_chunk(chunks[-1])


def test_chunk_length_grows_to_a_multiple_of_subsampling_and_modulus(capsys):
    assert SimpleComputationOptions(frames_per_chunk=50).outputs_per_chunk(1) == 50
    assert not capsys.readouterr().err
    options = SimpleComputationOptions(frames_per_chunk=50, frame_subsampling_factor=3)
    assert options.outputs_per_chunk(1) == 17
    assert "from 50 to 51 to make it a multiple of" in capsys.readouterr().err
    assert options.outputs_per_chunk(4) == 20
    assert "nnet shift-invariance modulus = 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    "values",
    [
        {"frames_per_chunk": 0},
        {"frame_subsampling_factor": 0},
        {"extra_left_context": -1},
        {"minibatch_size": 0},
        {"partial_minibatch_factor": 1.0},
    ],
)
def test_impossible_options_are_refused(values):
    with pytest.raises(OptionError):
        BatchComputationOptions(**values).check()
