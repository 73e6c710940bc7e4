"""Examples made of features and targets, compared with a frame-by-frame reading of the rules."""

import numpy as np
import pytest

from nnet3tools.errors import DataError, NotFiniteError
from nnet3tools.io.compressed import CompressedMatrix
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.posterior import Posterior
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.training.generation import (
    IvectorSource,
    MatrixTargets,
    PosteriorTargets,
    examples_of_utterance,
)
from nnet3tools.training.splitting import ExampleGenerationOptions, UtteranceSplitter

FEATURES = np.random.default_rng(2).normal(size=(31, 4)).astype(np.float32)
COUNTS = np.random.default_rng(3).integers(0, 3, 31)
POSTERIOR = Posterior.from_counts(
    COUNTS,
    np.random.default_rng(4).integers(0, 6, COUNTS.sum()),
    np.random.default_rng(5).uniform(0.1, 1, COUNTS.sum()),
)


def examples_of(*words, **options):
    """(key, example) of each chunk of an utterance."""
    keys, groups = examples_of_utterance(*words, **options)
    found = {place: group.example(i) for group in groups for i, place in enumerate(group.places)}
    return [(key, found[i]) for i, key in enumerate(keys)]


def plain_labels(t: int) -> np.ndarray:
    row = np.zeros(6)
    if t < 31:
        for i in range(POSTERIOR.offsets[t], POSTERIOR.offsets[t + 1]):
            row[POSTERIOR.pdfs[i]] += POSTERIOR.weights[i]
    return row


@pytest.mark.parametrize("num_frames", ["10", "9,7", "-1"])
@pytest.mark.parametrize("compress", [True, False])
def test_chunks_of_an_utterance(num_frames, compress):
    options = ExampleGenerationOptions(num_frames=num_frames, left_context=3, right_context=2)
    splitter = UtteranceSplitter(options)
    targets = PosteriorTargets("utt", POSTERIOR, 6)
    examples = list(examples_of("utt", FEATURES, targets, splitter, compress))
    assert examples
    seen = np.zeros((31, 6))
    for key, eg in examples:
        first = int(key.removeprefix("utt-"))
        inputs, outputs = eg.io
        assert isinstance(inputs.features, CompressedMatrix if compress else np.ndarray)
        assert isinstance(outputs.features, SparseMatrix)
        rows = (first + inputs.indexes[:, 1]).clip(0, 30)
        np.testing.assert_allclose(
            to_dense(inputs.features), FEATURES[rows], atol=0.05 if compress else 0
        )
        assert outputs.indexes[0].tolist() == [0, 0, 0]
        seen[first + outputs.indexes[:, 1]] += to_dense(outputs.features)
    used = seen.any(axis=1)
    expected = np.array([plain_labels(t) for t in range(31)])
    np.testing.assert_allclose(seen[used], expected[used], rtol=1e-5)


def test_compressed_features_are_cut_without_loss():
    coded = CompressedMatrix.from_dense(FEATURES)
    splitter = UtteranceSplitter(ExampleGenerationOptions(num_frames="12"))
    targets = PosteriorTargets("utt", POSTERIOR, 6)
    for key, eg in examples_of("utt", coded, targets, splitter, compress=True):
        first = int(key.removeprefix("utt-"))
        np.testing.assert_array_equal(
            to_dense(eg.io[0].features), coded.to_dense()[first : first + 12]
        )


def test_subsampled_targets():
    options = ExampleGenerationOptions(num_frames="9", frame_subsampling_factor=3)
    targets = MatrixTargets("utt", np.arange(11, dtype=np.float32)[:, None], 1)
    for key, eg in examples_of(
        "utt", FEATURES, targets, UtteranceSplitter(options), compress=False
    ):
        first = int(key.removeprefix("utt-"))
        assert eg.io[1].indexes[:, 1].tolist() == [0, 3, 6]
        np.testing.assert_array_equal(to_dense(eg.io[1].features)[:, 0], first // 3 + np.arange(3))


def test_too_short_an_utterance_warns(capsys):
    splitter = UtteranceSplitter(ExampleGenerationOptions(num_frames="40"))
    targets = PosteriorTargets("utt", POSTERIOR, 6)
    assert not list(examples_of("utt", FEATURES, targets, splitter, compress=True))
    assert "utterance utt because it is too short: 31 frames" in capsys.readouterr().err


def test_ivectors():
    matrices = {"utt": np.arange(4, dtype=np.float32)[:, None], "empty": np.empty((0, 1))}
    source = IvectorSource(matrices, period=10, tolerance=20)
    assert source.find("utt", 31) is matrices["utt"]
    drawn = {
        float(to_dense(source.draw(matrices["utt"], -5, 40).features)[0, 0]) for _ in range(200)
    }
    assert drawn == {0.0, 1.0, 2.0, 3.0}


@pytest.mark.parametrize(
    ("name", "frames", "message"),
    [
        ("other", 31, "No iVectors for utterance other"),
        ("utt", 61, "Length difference between feats 61 and iVectors 4 exceeds tolerance 20"),
        ("empty", 0, "iVectors 0"),
    ],
)
def test_ivectors_that_do_not_fit(capsys, name, frames, message):
    matrices = {"utt": np.zeros((4, 1)), "empty": np.zeros((0, 1))}
    assert IvectorSource(matrices, 10, 20).find(name, frames) is None
    assert message in capsys.readouterr().err


def test_targets_that_do_not_fit():
    with pytest.raises(DataError, match="'utt' has pdf 5: expected 0 to 4"):
        PosteriorTargets("utt", Posterior.from_counts([1, 1], [4, 5], [1, 1]), 5)
    with pytest.raises(DataError, match="'utt' have 2 columns: expected --num-targets=3"):
        MatrixTargets("utt", np.zeros((4, 2)), 3)
    with pytest.raises(DataError, match="'utt' is empty"):
        MatrixTargets("utt", np.zeros((0, 2)), -1)
    bad = np.zeros((4, 2))
    bad[2, 1] = np.nan
    with pytest.raises(DataError, match="targets of utterance 'utt': nan in row 2, column 1"):
        MatrixTargets("utt", bad, 2)
    with pytest.raises(NotFiniteError, match="posterior of utterance 'utt': inf in row 1"):
        PosteriorTargets("utt", Posterior.from_counts([1, 1], [0, 1], [1, np.inf]), 5)


def test_empty_posterior_gives_empty_labels():
    splitter = UtteranceSplitter(ExampleGenerationOptions(num_frames="2"))
    targets = PosteriorTargets("utt", Posterior.from_counts([], [], []), 3)
    for _, eg in examples_of("utt", FEATURES[:2], targets, splitter, compress=False):
        assert to_dense(eg.io[1].features).sum() == 0
