"""Chunks of utterances: what every split must satisfy, and one that Kaldi's splitter printed."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import OptionError
from nnet3tools.training.splitting import ExampleGenerationOptions, UtteranceSplitter

OPTIONS = [
    ExampleGenerationOptions(num_frames="8"),
    ExampleGenerationOptions(num_frames="40,25,50", num_frames_overlap=10),
    ExampleGenerationOptions(num_frames="20,11", num_frames_overlap=5, frame_subsampling_factor=3),
    ExampleGenerationOptions(num_frames="140,100,160", frame_subsampling_factor=3),
    ExampleGenerationOptions(num_frames="1"),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_chunks_fit_and_cover(options):
    tensor.random.seed(3)
    splitter = UtteranceSplitter(options)
    sizes, factor = options.chunk_sizes(), options.frame_subsampling_factor
    for length in range(1, 400, 3):
        chunks = splitter.split(length)
        assert bool(chunks) == (length >= min(sizes))
        count = np.zeros(-(-length // factor))
        weight = np.zeros(-(-length // factor))
        for chunk in chunks:
            assert chunk.num_frames in sizes
            assert chunk.first_frame >= 0
            assert chunk.first_frame % factor == 0
            assert chunk.first_frame + chunk.num_frames < length + factor
            span = slice(
                chunk.first_frame // factor, (chunk.first_frame + chunk.num_frames) // factor
            )
            count[span] += 1
            weight[span] += chunk.output_weights
        np.testing.assert_allclose(weight, count > 0, rtol=1e-6)
        starts = [chunk.first_frame for chunk in chunks]
        assert starts == sorted(starts)
        if chunks and options.num_frames_overlap == 0:
            # No more is left out than what the smallest chunk could have taken.
            assert (count == 0).sum() * factor < 2 * min(sizes)


def test_same_chunks_as_kaldi():
    """Printed by Kaldi's UtteranceSplitter with rand() in its initial state."""
    tensor.random.seed(1)
    splitter = UtteranceSplitter(ExampleGenerationOptions(num_frames="1"))
    assert [c.first_frame for c in splitter.split(1)] == [0, 0]
    assert [c.first_frame for c in splitter.split(3)] == [0, 0, 1, 2]


def test_an_overlap_of_one_frame_may_be_drawn_beside_an_exact_split_and_a_gap_may_not():
    splitter = UtteranceSplitter(ExampleGenerationOptions(num_frames="10,9"))
    found = {tuple(sorted(c.num_frames for c in splitter.split(19))) for _ in range(30)}
    assert found == {(9, 10), (10, 10)}


@pytest.mark.parametrize("num_frames", ["10", "10,9"])
def test_the_log_tells_the_shares_of_chunk_sizes_if_there_are_several(num_frames, capsys):
    splitter = UtteranceSplitter(ExampleGenerationOptions(num_frames=num_frames))
    for _ in range(20):
        splitter.split(19)
    splitter.print_stats()
    log = capsys.readouterr().err
    assert ("distributed among chunk-sizes as follows: 9 = " in log) == (num_frames == "10,9")


def test_contexts_at_the_ends():
    options = ExampleGenerationOptions(
        num_frames="10",
        left_context=4,
        right_context=3,
        left_context_initial=0,
        right_context_final=1,
    )
    chunks = UtteranceSplitter(options).split(30)
    assert [(c.left_context, c.right_context) for c in chunks] == [(0, 3), (4, 3), (4, 1)]


def test_whole_utterances():
    options = ExampleGenerationOptions(num_frames="-1", left_context=2)
    (chunk,) = UtteranceSplitter(options).split(17)
    assert (chunk.first_frame, chunk.num_frames, chunk.left_context) == (0, 17, 2)


def test_same_input_same_chunks():
    def starts() -> list[int]:
        tensor.random.seed(0)
        splitter = UtteranceSplitter(ExampleGenerationOptions(num_frames="9,7"))
        return [c.first_frame for length in range(20, 90) for c in splitter.split(length)]

    assert starts() == starts()


@pytest.mark.parametrize(
    "options",
    [
        ExampleGenerationOptions(num_frames="ten"),
        ExampleGenerationOptions(num_frames=""),
        ExampleGenerationOptions(num_frames="8,-3"),
        ExampleGenerationOptions(num_frames="8", num_frames_overlap=8),
        ExampleGenerationOptions(num_frames="8", frame_subsampling_factor=0),
    ],
)
def test_options_that_make_no_sense(options):
    with pytest.raises(OptionError, match=r"--(num-frames|frame-subsampling-factor)"):
        UtteranceSplitter(options)
