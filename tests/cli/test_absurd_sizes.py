"""Files and options that ask for absurd time or memory, and large files without content."""

import time
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.errors import MAX_FRAMES, MAX_STREAM_FRAMES, ConfigError, OptionError
from nnet3tools.executor.looped_computer import LoopedComputer
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.executor.xvector_plans import XvectorOptions
from nnet3tools.nnet.config import MAX_LINE, parse_config_lines
from nnet3tools.recognizer.batched_streams import BatchedNetwork
from nnet3tools.training.splitting import ExampleGenerationOptions, UtteranceSplitter
from support.handmade import small_nnet
from support.programs import run


def test_blank_lines_cost_next_to_nothing(tmp_path: Path) -> None:
    config = tmp_path / "net.config"
    count = 5_000_000
    config.write_text(
        f"input-node name=input dim=4{chr(10) * count}# note\noutput-node name=output input=b"
    )
    start = time.process_time()
    assert run("nnet3-init", config, tmp_path / "0.raw") != 0
    assert time.process_time() - start < 2, "it took 3 s for a call a line"


def test_line_numbers_are_those_of_the_file() -> None:
    lines = parse_config_lines("\n # a=b\r\n\n  a x=1 # y=2\n\t\nb z=3\n", "net.config")
    assert [(line.text, line.line_number) for line in lines] == [("a x=1", 4), ("b z=3", 6)]


def test_lines_of_megabytes_are_refused_with_the_limit() -> None:
    with pytest.raises(
        ConfigError, match=rf"net.config:2: a line of \d+ characters: at most {MAX_LINE}"
    ):
        parse_config_lines("\na x=" + "b" * MAX_LINE, "net.config")


def test_absurd_parameters_of_a_formula_are_refused(tmp_path: Path, capfd) -> None:
    config = tmp_path / "net.config"
    config.write_text(
        'component name=c type=ExpressionComponent dim=4 params=alpha:100000000 expression="x"\n'
    )
    assert run("nnet3-init", config, tmp_path / "0.raw") != 0
    assert "at most 67108864" in capfd.readouterr().err


def test_chunks_much_longer_than_the_principal_ones() -> None:
    """Splitting once built a table of all lengths by all splits, of 5 GB."""
    splitter = UtteranceSplitter(ExampleGenerationOptions(num_frames="140,100160"))
    sizes = {chunk.num_frames for chunk in splitter.split(100_300)}
    assert sizes == {140, 100_160} or sizes == {140}
    with pytest.raises(OptionError, match="--num-frames=1,100160: the first number is too small"):
        UtteranceSplitter(ExampleGenerationOptions(num_frames="1,100160"))


@pytest.mark.parametrize("overlap", [0, 10])
def test_splits_are_those_of_the_whole_table(overlap: int) -> None:
    splitter = UtteranceSplitter(
        ExampleGenerationOptions(num_frames="40,25,50", num_frames_overlap=overlap)
    )
    for length in range(20, 140, 7):
        splits = splitter._splits_of(length)
        costs = {}
        for split in splitter._splits:
            over = float(splitter._duration(split)) - length
            if length >= max(split):
                costs[split] = over if over > 0 else -2 * over
        best = min(costs.values(), default=0.0)
        expected = [s for s, cost in costs.items() if cost < best + float(np.float32(1.9999))]
        assert splits == expected


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
