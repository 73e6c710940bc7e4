"""Whole utterances through chunks, against formulas written out for the whole utterance."""

from dataclasses import replace

import numpy as np
import pytest

from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import DataError
from nnet3tools.executor.chunk_programs import ChunkPrograms
from nnet3tools.executor.chunks import ChunkShape, Ivectors
from nnet3tools.executor.minibatches import PaddedChunks
from nnet3tools.executor.simple_network import SimpleNetwork
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.executor.utterance_computer import (
    UtteranceComputer,
    computer_one_by_one,
    computer_together,
    xvector_computer,
)
from nnet3tools.executor.xvector_plans import XvectorOptions, XvectorPieces
from support.configs import in_a_row
from support.utterance_networks import WITH_IVECTOR, network_of, recurrent_config

FEED_FORWARD = in_a_row("""input dim=3
a AffineComponent input-dim=9 output-dim=5 \
input=Append(Offset(input, -2), input, Offset(input, 1))
tanh TanhComponent dim=5
b AffineComponent input-dim=10 output-dim=4 input=Append(tanh, Offset(tanh, 3))""")

POOLING = """
input-node name=input dim=3
component name=stats type=StatisticsExtractionComponent input-dim=3 input-period=1 output-period=1 \
include-variance=false
component name=pool type=StatisticsPoolingComponent input-dim=4 input-period=1 left-context=1000 \
right-context=1000 num-log-count-features=0 output-stddevs=false
component-node name=stats component=stats input=input
component-node name=pool component=pool input=stats
output-node name=output input=Round(pool, 1)
"""


def batch_computer(nnet, options):
    network = SimpleNetwork(nnet)
    return UtteranceComputer(network, options, PaddedChunks(options, network.context))


def frames(count, dim=3, seed=0):
    return np.random.default_rng((count, dim, seed)).normal(size=(count, dim)).astype(np.float32)


def weights(nnet, name):
    return list(nnet.component(nnet.component_index(name)).parameters().values())


def feed_forward_by_hand(nnet, x):
    """Every output at once, the ends of the utterance repeated."""
    (w1, b1), (w2, b2) = weights(nnet, "a"), weights(nnet, "b")
    at = np.arange(len(x))[:, None]

    def hidden(t):
        rows = np.clip(t + np.array([-2, 0, 1]), 0, len(x) - 1)
        return np.tanh(x[rows].reshape(len(x), -1) @ w1.T + b1)

    return np.hstack([hidden(at), hidden(at + 3)]) @ w2.T + b2


@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("per_chunk", [1, 7, 12, 1000])
def test_chunks_of_a_feed_forward_network_give_what_the_whole_gives(per_chunk, factor):
    nnet = network_of(FEED_FORWARD)
    options = SimpleComputationOptions(
        frames_per_chunk=per_chunk, frame_subsampling_factor=factor, extra_left_context=2
    )
    computer = computer_one_by_one(nnet, options)
    for count in (1, 12, 25):
        x = frames(count)
        expected = feed_forward_by_hand(nnet, x)[::factor]
        np.testing.assert_allclose(computer.compute(x), expected, rtol=1e-4, atol=1e-5)


def test_outputs_of_one_utterance_survive_the_next():
    nnet = network_of(FEED_FORWARD)
    computer = computer_one_by_one(nnet, SimpleComputationOptions(frames_per_chunk=5))
    first = computer.compute(frames(9))
    kept = first.copy()
    computer.compute(frames(9, seed=1))
    np.testing.assert_array_equal(first, kept)


def test_programs_are_compiled_once_for_each_shape_of_chunk():
    nnet = network_of(FEED_FORWARD)
    computer = computer_one_by_one(nnet, SimpleComputationOptions(frames_per_chunk=5))
    for count in (25, 15, 13, 28):
        computer.compute(frames(count))
    assert len(computer.compiler.cache) == 2  # chunks of 5, and two last ones of 3


def test_a_recurrence_starts_anew_at_each_chunks_extra_context():
    nnet = network_of(recurrent_config())
    (w, b), (u,) = weights(nnet, "in"), weights(nnet, "back")
    x = frames(10)
    options = SimpleComputationOptions(
        frames_per_chunk=4, extra_left_context=3, extra_left_context_initial=1
    )
    expected = np.zeros((10, 4), np.float32)
    for first in (0, 4, 8):
        h = np.zeros(4, np.float32)
        for t in range(first - (3 if first else 1), min(first + 4, 10)):
            h = np.tanh(x[max(t, 0)] @ w.T + b + u @ h)
            if t >= first:
                expected[t] = h
    result = computer_one_by_one(nnet, options).compute(x)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("online", [False, True])
def test_ivectors_of_the_utterance_or_of_the_chunks_middle(online):
    nnet = network_of(WITH_IVECTOR)
    ((w, b),) = [weights(nnet, "a")]
    x, vectors = frames(20), frames(5, 2)
    ivectors = Ivectors(vectors, 4) if online else Ivectors(vectors[0])
    # Chunks [0, 8), [8, 16), [16, 20): their middles are 3, 11 and 17.
    rows = np.repeat([0, 2, 4], [8, 8, 4]) if online else np.zeros(20, int)
    before = x[np.maximum(np.arange(20) - 1, 0)]
    expected = np.hstack([before, vectors[rows]]) @ w.T + b
    computer = computer_one_by_one(nnet, SimpleComputationOptions(frames_per_chunk=8))
    np.testing.assert_allclose(computer.compute(x, ivectors), expected, rtol=1e-4, atol=1e-5)


def test_priors_are_divided_by_and_the_scale_comes_last():
    nnet, x = network_of(FEED_FORWARD), frames(6)
    priors = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    options = SimpleComputationOptions(acoustic_scale=0.5)
    result = computer_one_by_one(nnet, options, priors).compute(x)
    expected = 0.5 * (feed_forward_by_hand(nnet, x) - np.log(priors))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match="3 priors, but the output has dimension 4"):
        computer_one_by_one(nnet, options, priors[:3])
    with pytest.raises(DataError, match="not positive"):
        computer_one_by_one(nnet, options, 0 * priors)


def nan_frames():
    x = frames(5)
    x[3, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("config", "x", "ivectors", "message"),
    [
        (FEED_FORWARD, frames(5, 4), None, "'input' features with dimension 3, found 4"),
        (FEED_FORWARD, nan_frames(), None, "features: nan in row 3, column 1"),
        (FEED_FORWARD, frames(5), Ivectors(frames(1, 2)[0]), "the network takes none"),
        (WITH_IVECTOR, frames(5), None, "'ivector' features with dimension 2, but none are given"),
        (WITH_IVECTOR, frames(5), Ivectors(frames(1)[0]), "dimension 2, found dimension 3"),
        (WITH_IVECTOR, frames(5), Ivectors(nan_frames()[:, :2], 1), "i-vectors: nan in row 3"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(config, x, ivectors, message):
    computer = computer_one_by_one(network_of(config), SimpleComputationOptions())
    with pytest.raises(DataError, match=message):
        computer.compute(x, ivectors)


# -- batches


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("factor", [1, 3])
def test_batches_give_the_same_numbers_in_the_same_order(factor, exact):
    nnet = network_of(FEED_FORWARD)
    common = {"frames_per_chunk": 6, "frame_subsampling_factor": factor}
    options = BatchComputationOptions(**common, minibatch_size=4, ensure_exact_final_context=exact)
    one, many = computer_one_by_one(nnet, SimpleComputationOptions(**common)), []
    computer = batch_computer(nnet, options)
    utterances = {f"u{n}": frames(n) for n in (3, 50, 1, 17, 6, 8, 31)}
    for key, x in utterances.items():
        computer.accept(key, x)
        many += computer.ready()
    assert len(many) > 0  # not all wait for the end
    computer.finish()
    many += computer.ready()
    assert [key for key, _ in many] == list(utterances)
    for key, output in many:
        np.testing.assert_allclose(output, one.compute(utterances[key]), rtol=1e-4, atol=1e-5)


def test_batches_keep_edges_and_ivectors_apart():
    nnet = network_of(WITH_IVECTOR)
    common = {"frames_per_chunk": 4, "extra_left_context": 2, "extra_left_context_initial": 0}
    options = BatchComputationOptions(**common, minibatch_size=3, edge_minibatch_size=2)
    one = computer_one_by_one(nnet, SimpleComputationOptions(**common))
    computer = batch_computer(nnet, options)
    inputs = [(frames(n), Ivectors(frames(1, 2, seed=n)[0])) for n in (12, 4, 20)]
    for i, (x, ivectors) in enumerate(inputs):
        computer.accept(str(i), x, ivectors)
    computer.finish()
    for (_, output), (x, ivectors) in zip(computer.ready(), inputs, strict=True):
        np.testing.assert_allclose(output, one.compute(x, ivectors), rtol=1e-4, atol=1e-5)


def test_an_utterance_does_not_wait_for_company_for_ever():
    nnet = network_of(FEED_FORWARD)
    options = BatchComputationOptions(
        frames_per_chunk=4,
        extra_left_context=1,
        extra_left_context_initial=0,
        minibatch_size=1,
        edge_minibatch_size=50,
    )
    replace(options, edge_minibatch_size=1).check()
    computer = batch_computer(nnet, options)
    for i in range(9):
        computer.accept(str(i), frames(4, seed=i))
    assert [key for key, _ in computer.ready()][:1] == ["0"]


# -- x-vectors


@pytest.mark.parametrize(("size", "shortest"), [(-1, 1), (7, 1), (7, 5), (7, 9)])
def test_xvectors_average_over_pieces_by_their_frames(size, shortest):
    nnet, x = network_of(POOLING), frames(17)
    total = np.zeros(3)
    for first in range(0, 17, 17 if size < 0 else size):
        piece = x[first : first + (17 if size < 0 else size)]
        count = len(piece)
        missing = max(0, shortest - count)
        padded = np.pad(piece, ((missing // 2, missing - missing // 2), (0, 0)), "edge")
        total += count * padded.mean(axis=0)
    options = XvectorOptions(size, shortest)
    computer = xvector_computer(nnet, SimpleComputationOptions(), XvectorPieces(options))
    result = computer.compute(x)[0]
    np.testing.assert_allclose(result, total / 17, rtol=1e-4, atol=1e-5)


def test_short_pieces_are_left_out_without_padding():
    nnet, x = network_of(POOLING), frames(17)
    options = XvectorOptions(7, 5, pad_input=False)
    computer = xvector_computer(nnet, SimpleComputationOptions(), XvectorPieces(options))
    result = computer.compute(x)[0]
    np.testing.assert_allclose(result, x[:14].mean(axis=0), rtol=1e-4, atol=1e-5)
    options = XvectorOptions(7, 9, pad_input=False)
    with pytest.raises(DataError, match="no piece has the minimum chunk size of 9"):
        xvector_computer(nnet, SimpleComputationOptions(), XvectorPieces(options)).compute(x)


def test_batch_norm_that_is_not_in_test_mode_sees_one_chunk_of_one_utterance():
    """Minibatches of several chunks, or a longer last chunk, would change its mean."""
    nnet = network_of(
        in_a_row("""input dim=3
b BatchNormComponent dim=3 epsilon=1e-8""")
    )
    computer = computer_together(nnet, SimpleComputationOptions(frames_per_chunk=5))
    utterances = {key: frames(count, seed=1) for key, count in (("a", 12), ("b", 12), ("c", 5))}
    found = {}
    for key, x in utterances.items():
        computer.accept(key, x)
        found.update(computer.ready())
    computer.finish()
    found.update(computer.ready())
    for key, x in utterances.items():
        chunks = [x[first : first + 5] for first in range(0, len(x), 5)]
        expected = np.concatenate([(c - c.mean(0)) / c.std(0) for c in chunks])
        np.testing.assert_allclose(found[key], expected, rtol=1e-3, atol=1e-4)


def test_the_program_that_was_used_longest_ago_makes_room():
    options = SimpleComputationOptions(compiler=CompilerOptions(cache_capacity=2))
    programs = ChunkPrograms(network_of(FEED_FORWARD), options)
    shapes = [ChunkShape(-2, n + 6, n, 1) for n in (9, 8, 7)]
    first, second = (programs.computer(shape) for shape in shapes[:2])
    assert programs.computer(shapes[0]) is first
    programs.computer(shapes[2])
    assert programs.computer(shapes[0]) is first
    assert programs.computer(shapes[1]) is not second


@pytest.mark.parametrize(("count", "is_said"), [(19, True), (20, False)])
def test_only_utterances_shorter_than_a_piece_are_logged(count, is_said, capsys):
    plan = XvectorPieces(XvectorOptions(20, 1, True))
    xvector_computer(network_of(POOLING), SimpleComputationOptions(), plan).compute(frames(count))
    assert ("Using a chunk size of 19" in capsys.readouterr().err) == is_said
