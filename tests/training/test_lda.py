"""LDA statistics, and the transform made of them, against sums over one vector after the other."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io.table import TableWriter
from nnet3tools.nnet.arithmetic import set_batchnorm_test_mode
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import EXAMPLE, NnetExample
from nnet3tools.training.feature_transform import estimate_transform
from nnet3tools.training.lda import LdaStats
from nnet3tools.training.lda_accumulation import LdaAccumulator, accumulate_examples
from support.streams import bytes_reader, to_bytes
from support.training_helpers import example, network

DIM, CLASSES = 5, 4


def make(seed: int = 0, count: int = 200) -> tuple[LdaStats, np.ndarray, np.ndarray, np.ndarray]:
    """Statistics, and their data, classes and weights; one class has no data."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, CLASSES - 1, count)
    data = rng.normal(size=(count, DIM)) @ rng.normal(size=(DIM, DIM)) + 3 * classes[:, None]
    data, weights = data.astype(np.float32), rng.uniform(0.5, 1.5, count).astype(np.float32)
    stats = LdaStats.empty(CLASSES, DIM)
    stats.accumulate(data, np.arange(count), classes, weights)
    return stats, data.astype(float), classes, weights.astype(float)


def covariances(data, classes, weights):
    """Within and between classes, vector by vector."""
    total, mean = weights.sum(), (weights[:, None] * data).sum(axis=0) / weights.sum()
    within, between = np.zeros((DIM, DIM)), np.zeros((DIM, DIM))
    for k in set(classes.tolist()):
        mine = classes == k
        centre = np.average(data[mine], axis=0, weights=weights[mine])
        between += weights[mine].sum() * np.outer(centre - mean, centre - mean) / total
        for x, w in zip(data[mine], weights[mine], strict=True):
            within += w * np.outer(x - centre, x - centre) / total
    return within, between, mean


def test_covariances() -> None:
    stats, data, classes, weights = make()
    expected = covariances(data, classes, weights)
    for ours, theirs in zip(stats.covariances(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_a_row_may_belong_to_several_classes() -> None:
    stats = LdaStats.empty(3, 2)
    rows, classes = np.array([0, 0, 1]), np.array([0, 2, 2])
    data = np.array([[1, 2], [3, 4]], np.float32)
    stats.accumulate(data, rows, classes, np.array([0.25, 0.75, 1], np.float32))
    np.testing.assert_allclose(stats.zero, [0.25, 0, 1.75])
    np.testing.assert_allclose(stats.first, [[0.25, 0.5], [0, 0], [3.75, 5.5]])
    np.testing.assert_allclose(stats.second, [[10, 14], [14, 20]])


@pytest.mark.parametrize("binary", [False, True])
def test_files_keep_the_statistics(binary: bool) -> None:
    stats, *_ = make()
    data = to_bytes(stats, binary)
    again = LdaStats.read(bytes_reader(data))
    np.testing.assert_allclose(again.first, stats.first, rtol=1e-5)
    np.testing.assert_allclose(again.second, stats.second, rtol=1e-4)
    if not binary:
        rows = data.decode().split("<SECOND_ACCS> [\n")[1].splitlines()
        assert [len(row.rstrip("]").split()) for row in rows[:DIM]] == [1, 2, 3, 4, 5]
        assert rows[DIM - 1].endswith(" ]")
        assert rows[DIM] == "</LDAACCS> "


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<VECSIZE> 5", "<VECSIZE> 6"),
        ("<NUMCLASSES> 4", "<NUMCLASSES> 3"),
        ("]\n</LDA", "1 ]\n</LDA"),
    ],
)
def test_files_that_contradict_themselves(old: str, new: str) -> None:
    text = to_bytes(make()[0], False).decode()
    with pytest.raises(DataError):
        LdaStats.read(bytes_reader(text.replace(old, new).encode()))


def test_sums_and_their_refusal() -> None:
    (one, *_), (two, *_) = make(0), make(1)
    expected = one.second + two.second
    one.add(two)
    np.testing.assert_allclose(one.second, expected)
    with pytest.raises(DataError, match="3 classes in 5 dimensions cannot be added"):
        one.add(LdaStats.empty(3, 5))


def test_transform_without_scaling_is_lda() -> None:
    stats, data, classes, weights = make()
    within, between, mean = covariances(data, classes, weights)
    found = estimate_transform(stats, within_class_factor=1.0, max_singular_value=0.0)
    linear, offset = found.matrix[:, :-1].astype(float), found.matrix[:, -1]
    np.testing.assert_allclose(linear @ within @ linear.T, np.eye(DIM), atol=1e-4)
    diagonal = linear @ between @ linear.T
    np.testing.assert_allclose(diagonal, np.diag(np.diag(diagonal)), atol=1e-3)
    assert (np.diff(np.diag(diagonal)) <= 1e-3).all()
    np.testing.assert_allclose(linear @ mean + offset, 0, atol=1e-3)
    np.testing.assert_allclose(found.cholesky @ found.cholesky.T, within, rtol=1e-9)


def test_scaling_and_limit() -> None:
    stats, data, classes, weights = make()
    _, between, _ = covariances(data, classes, weights)
    plain = estimate_transform(stats, 2, 1.0, 0.0, remove_offset=False).matrix.astype(float)
    scaled = estimate_transform(stats, 2, 0.1, 0.0, remove_offset=False).matrix
    ratio = np.diag(plain @ between @ plain.T)
    np.testing.assert_allclose(
        scaled, np.sqrt((0.1 + ratio) / (1 + ratio))[:, None] * plain, rtol=1e-3, atol=1e-5
    )
    limited = estimate_transform(stats, -1, 0.1, 0.2, remove_offset=False).matrix
    full = estimate_transform(stats, -1, 0.1, 0.0, remove_offset=False).matrix
    values = np.linalg.svd(full, compute_uv=False)
    assert values.max() > 0.2
    np.testing.assert_allclose(
        np.linalg.svd(limited, compute_uv=False), np.minimum(values, 0.2), rtol=1e-4
    )


def test_transforms_that_cannot_be() -> None:
    with pytest.raises(OptionError, match="have dimension 5"):
        estimate_transform(make()[0], dim=6)
    with pytest.raises(DataError, match="without any data"):
        estimate_transform(LdaStats.empty(3, 2))


def test_singular_covariance_is_smoothed(capsys: pytest.CaptureFixture[str]) -> None:
    stats = LdaStats.empty(2, 3)
    data = np.array([[1, 1, 0], [-1, -1, 0], [2, 2, 0]], np.float32)
    stats.accumulate(data, np.arange(3), np.array([0, 0, 1]), np.ones(3, np.float32))
    assert np.isfinite(estimate_transform(stats).matrix).all()
    assert "Cholesky failed (possibly not +ve definite), so adding" in capsys.readouterr().err


def test_accumulation_over_a_network_and_pruning() -> None:
    nnet, sample = network(), example(num_frames=6)
    whole = LdaAccumulator(nnet)
    whole.accumulate(sample)
    assert whole.stats is not None
    assert whole.stats.total == 6
    assert whole.stats.first.shape == (5, 5)
    supervision = sample.io[1].features
    np.testing.assert_allclose(whole.stats.zero, np.bincount(supervision.indices, minlength=5))
    tensor.random.seed(3)
    pruned = LdaAccumulator(nnet, rand_prune=2.0)
    for _ in range(51):  # odd, so that sums of weights that were not pruned are odd, too
        pruned.accumulate(sample)
    assert pruned.stats is not None
    assert set((pruned.stats.zero % 2).tolist()) == {0.0}
    assert 200 < pruned.stats.total < 400


SPLICING = """
input-node name=input dim=3
output-node name=output input=Append(Offset(input, -1), input, Offset(input, 1))
"""


def table(path, examples: list[NnetExample]) -> str:
    with TableWriter(f"ark:{path}", EXAMPLE) as writer:
        for i, item in enumerate(examples):
            writer.write(f"e{i}", item)
    return f"ark:{path}"


def mixed_examples() -> list[NnetExample]:
    """Two structures by turns, in runs; more than enough for the layout of examples to be found."""
    return [example(num_frames=4 if i % 40 < 25 else 7, seed=i) for i in range(120)]


@pytest.mark.parametrize("rand_prune", [0.0, 4.0])
def test_examples_taken_together_give_the_statistics_of_each_by_itself(tmp_path, rand_prune):
    nnet = Nnet.from_config(parse_config_lines(SPLICING))
    together, alone = LdaAccumulator(nnet, rand_prune), LdaAccumulator(nnet, rand_prune)
    tensor.random.seed(1)
    assert accumulate_examples(together, table(tmp_path / "egs", mixed_examples())) == 120
    drawn = tensor.random.get_state()
    tensor.random.seed(1)
    for item in mixed_examples():
        alone.accumulate(item)
    assert together.stats is not None
    assert alone.stats is not None
    assert drawn == tensor.random.get_state()
    assert to_bytes(together.stats, True) == to_bytes(alone.stats, True)


def test_rows_that_depend_on_one_another_are_not_computed_together(tmp_path) -> None:
    nnet = network()  # batch norm in training
    together, alone = LdaAccumulator(nnet), LdaAccumulator(nnet)
    assert not together.may_merge
    accumulate_examples(together, table(tmp_path / "egs", mixed_examples()))
    for item in mixed_examples():
        alone.accumulate(item)
    assert together.stats is not None
    assert alone.stats is not None
    np.testing.assert_array_equal(together.stats.first, alone.stats.first)
    set_batchnorm_test_mode(nnet, True)
    assert LdaAccumulator(nnet).may_merge


def test_an_example_that_does_not_fit_is_named_among_those_it_was_taken_with(tmp_path) -> None:
    nnet = Nnet.from_config(parse_config_lines(SPLICING))
    examples = mixed_examples()
    examples[7] = example(num_frames=4, num_classes=6)
    with pytest.raises(DataError, match="example 'e7': example has 6 classes, those before it 5"):
        accumulate_examples(LdaAccumulator(nnet), table(tmp_path / "egs", examples))


def test_one_that_is_not_finite_is_left_out_alone(tmp_path, capsys) -> None:
    nnet = Nnet.from_config(parse_config_lines(SPLICING))
    examples = mixed_examples()
    examples[7].io[0].features[0, 0] = np.nan
    accumulator = LdaAccumulator(nnet)
    assert accumulate_examples(accumulator, table(tmp_path / "egs", examples)) == 119
    assert "left out 1 of 120 examples" in capsys.readouterr().err
    assert accumulator.stats is not None
    assert accumulator.stats.total == sum(len(e.io[1].indexes) for e in examples) - 4
