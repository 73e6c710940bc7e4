"""Vectors computed in batches of chunks, against the chunks computed one by one."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import DataError, OptionError
from nnet3tools.executor.simple_network import SimpleNetwork
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.executor.utterance_computer import UtteranceComputer, xvector_computer
from nnet3tools.executor.xvector_plans import (
    EvenChunks,
    XvectorOptions,
    XvectorPieces,
    chunk_starts,
)
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from support.configs import in_a_row

CONFIG = in_a_row("""input dim=3
a AffineComponent input-dim=9 output-dim=4 input=Append(input, Offset(input, 1), Offset(input, 2))
r RectifiedLinearComponent dim=4
x StatisticsExtractionComponent input-dim=4 include-variance=true
p StatisticsPoolingComponent input-dim=9 output-stddevs=true left-context=0 right-context=1000
b AffineComponent input-dim=8 output-dim=5 input=Round(p, 1)""")


def network() -> Nnet:
    tensor.random.seed(1)
    return Nnet.from_config(parse_config_lines(CONFIG))


def batches(
    nnet: Nnet,
    options: SimpleComputationOptions,
    chunk_size: int,
    batch_size: int,
    pad: bool = True,
) -> UtteranceComputer:
    plan = EvenChunks(SimpleNetwork(nnet).context, chunk_size, batch_size, pad)
    return xvector_computer(nnet, options, plan)


@pytest.mark.parametrize("context", [0, 3])
def test_chunks_are_as_even_as_they_can_be(context: int) -> None:
    size = 20
    for num_frames in range(21, 150):
        starts = chunk_starts(num_frames, size, context)
        assert starts[0] >= 0
        assert starts[-1] + size <= num_frames
        steps = np.diff(starts)
        assert len(steps) == 0 or steps.max() - steps.min() <= 1
        # The other number of chunks would have given a mean of no smaller variance.
        length, step = num_frames - context, size - context

        def variance(count: int, length: int = length, step: int = step) -> float:
            twice = max(0, count * step - length)
            once = count * step - 2 * twice
            return (once + 4 * twice) / (once + 2 * twice) ** 2

        few = length // step
        other = few + 1 if len(starts) == few else few
        assert len(starts) in (few, few + 1)
        assert variance(len(starts)) <= variance(other) * (1 + 1e-6)


def test_short_utterances() -> None:
    assert chunk_starts(20, 20, 2, pad=False).tolist() == [0]
    assert chunk_starts(7, 20, 2).tolist() == [0]
    assert chunk_starts(7, 20, 2, pad=False).tolist() == []


def test_vectors_are_means_over_chunks() -> None:
    nnet, rng = network(), np.random.default_rng(0)
    options = SimpleComputationOptions()
    batched = batches(nnet, options, chunk_size=12, batch_size=4)
    single = xvector_computer(nnet, options, XvectorPieces(XvectorOptions(-1, 1, True)))
    lengths = {"a": 30, "b": 5, "c": 61, "d": 12}
    features = {k: rng.normal(size=(n, 3)).astype(np.float32) for k, n in lengths.items()}
    found = []
    for key, matrix in features.items():
        batched.accept(key, matrix)
        found += batched.ready()
    assert len(found) < 4
    batched.finish()
    found += batched.ready()
    assert [key for key, _ in found] == list(lengths)
    for key, vector in found:
        rows = np.arange(12) + chunk_starts(lengths[key], 12, 2)[:, None]
        chunks = features[key][rows.clip(max=lengths[key] - 1)]
        expected = np.mean([single.compute(chunk)[0] for chunk in chunks], axis=0)
        np.testing.assert_allclose(vector[0], expected, rtol=1e-4, atol=1e-5)
    batched.close()


def test_a_short_utterance_without_padding_gives_zero(capsys: pytest.CaptureFixture[str]) -> None:
    computer = batches(network(), SimpleComputationOptions(), 12, 4, pad=False)
    computer.accept("short", np.ones((5, 3), np.float32))
    ((key, vector),) = computer.ready()
    assert key == "short"
    assert not vector.any()
    assert "WARNING" in capsys.readouterr().err


def test_what_does_not_fit() -> None:
    options = SimpleComputationOptions()
    with pytest.raises(OptionError, match="larger than the network's context, 2 frames"):
        batches(network(), options, chunk_size=2, batch_size=4)
    computer = batches(network(), options, chunk_size=12, batch_size=4)
    with pytest.raises(DataError, match="dimension 3, found 4"):
        computer.accept("a", np.ones((5, 4), np.float32))
