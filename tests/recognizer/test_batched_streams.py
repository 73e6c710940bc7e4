"""Streams computed together: the outputs are those of each stream alone."""

import threading

import numpy as np
import pytest

from nnet3tools.errors import NotFiniteError
from nnet3tools.executor.looped_computer import LoopedComputer
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.recognizer.batched_streams import BatchedNetwork, BatchedStream
from support.configs import in_a_row
from support.utterance_networks import network_of

CONFIG = in_a_row("""input dim=3
a AffineComponent input-dim=9 output-dim=5 \
input=Append(Offset(input, -4), input, Offset(input, 1))
relu RectifiedLinearComponent dim=5
b AffineComponent input-dim=10 output-dim=4 input=Append(Offset(relu, -3), Offset(relu, 3))""")
OPTIONS = SimpleComputationOptions(
    frame_subsampling_factor=3, frames_per_chunk=9, acoustic_scale=0.5
)


@pytest.fixture(scope="module")
def network() -> BatchedNetwork:
    return BatchedNetwork(network_of(CONFIG), OPTIONS)


def outputs_of(network: BatchedNetwork, features: np.ndarray, sizes: list[int]) -> np.ndarray:
    stream = BatchedStream(network)
    pieces = np.split(features, np.cumsum(sizes)[:-1])
    return np.concatenate([*map(stream.accept, pieces), stream.finish()])


@pytest.mark.parametrize("num_frames", [1, 2, 8, 9, 10, 40, 400])
def test_outputs_are_those_of_a_stream_alone_however_it_is_cut(
    network: BatchedNetwork, num_frames: int
) -> None:
    features = np.random.default_rng(num_frames).normal(size=(num_frames, 3)).astype(np.float32)
    expected = LoopedComputer(network_of(CONFIG), OPTIONS).compute(features)
    for sizes in ([num_frames], [1] * num_frames, [num_frames // 2, num_frames - num_frames // 2]):
        found = outputs_of(network, features, sizes)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_chunk_is_computed_with_the_last_frame_that_it_reads(network: BatchedNetwork) -> None:
    stream = BatchedStream(network)
    features = np.zeros((11, 3), np.float32)  # 7 frames to the last output, 4 of right context
    assert len(stream.accept(features[:10])) == 0
    assert len(stream.accept(features[10:])) == 3


def test_streams_in_many_threads_do_not_get_the_outputs_of_others(network: BatchedNetwork) -> None:
    rng = np.random.default_rng(5)
    features = [rng.normal(size=(50 + 7 * i, 3)).astype(np.float32) for i in range(12)]
    found: dict[int, np.ndarray] = {}

    def run(i: int) -> None:
        found[i] = outputs_of(network, features[i], [5] * (len(features[i]) // 5) + [0])

    before = network.num_chunks, network.num_minibatches
    network._lock.acquire()  # so that all threads wait with their first chunk
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(features))]
    for thread in threads:
        thread.start()
    while len(network._waiting) < len(threads):
        pass
    network._lock.release()
    for thread in threads:
        thread.join()
    chunks, minibatches = np.array([network.num_chunks, network.num_minibatches]) - before
    assert minibatches <= chunks - len(threads) + 1
    for i, given in enumerate(features):
        expected = outputs_of(network, given, [len(given)])
        np.testing.assert_allclose(found[i], expected, rtol=1e-5, atol=1e-6)


def test_outputs_that_are_not_finite_fail_only_their_own_stream(network: BatchedNetwork) -> None:
    huge, good = np.full((20, 3), 3e38, np.float32), np.ones((20, 3), np.float32)
    failed = []

    def overflow() -> None:
        with pytest.raises(NotFiniteError):
            outputs_of(network, huge, [20])
        failed.append(True)

    thread = threading.Thread(target=overflow)
    network._lock.acquire()
    thread.start()
    while not network._waiting:
        pass
    other = threading.Timer(0.05, network._lock.release)
    other.start()
    assert np.isfinite(outputs_of(network, good, [20])).all()
    thread.join()
    assert failed
