"""Numbers of frames too large for the memory are refused in a message that names the option."""

import pytest

from nnet3tools.errors import MAX_FRAMES, MAX_STREAM_FRAMES, OptionError
from nnet3tools.executor.looped_computer import LoopedComputer
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.executor.xvector_plans import XvectorOptions
from nnet3tools.recognizer.batched_streams import BatchedNetwork
from nnet3tools.training.splitting import ExampleGenerationOptions
from support.handmade import small_nnet

TOO_MANY = 2_000_000_000


def raises_naming(option: str) -> object:
    return pytest.raises(OptionError, match=f"--{option}={TOO_MANY} is too large")


@pytest.mark.parametrize(
    "option", ["extra-left-context", "extra-right-context-final", "frame-subsampling-factor"]
)
def test_what_chunks_are_padded_with(option: str) -> None:
    with raises_naming(option):
        SimpleComputationOptions(**{option.replace("-", "_"): TOO_MANY}).check()


def test_chunks_that_are_padded_to_their_full_length() -> None:
    with raises_naming("frames-per-chunk"):
        BatchComputationOptions(frames_per_chunk=TOO_MANY).check()
    with raises_naming("min-chunk-size"):
        XvectorOptions(min_chunk_size=TOO_MANY).check()


def test_chunks_as_long_as_any_utterance_are_fine_where_nothing_is_padded() -> None:
    SimpleComputationOptions(frames_per_chunk=TOO_MANY).check()
    BatchComputationOptions(frames_per_chunk=TOO_MANY, ensure_exact_final_context=True).check()
    XvectorOptions(chunk_size=TOO_MANY).check()
    BatchComputationOptions(frames_per_chunk=MAX_FRAMES).check()


@pytest.mark.parametrize("option", ["num-frames", "left-context", "right-context-final"])
def test_examples(option: str) -> None:
    value = str(TOO_MANY) if option == "num-frames" else TOO_MANY
    with raises_naming(option):
        ExampleGenerationOptions(**{option.replace("-", "_"): value}).chunk_sizes()


def test_chunks_of_streams_which_are_never_shorter() -> None:
    nnet = small_nnet()
    options = SimpleComputationOptions(frames_per_chunk=MAX_STREAM_FRAMES + 1)
    for make in (LoopedComputer, BatchedNetwork):
        with pytest.raises(OptionError, match="--frames-per-chunk=10001 is too large: at most"):
            make(nnet, options)
