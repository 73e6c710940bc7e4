"""Programs on features, matrices, vectors and alignments, against plain NumPy formulas."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.compressed import CompressedMatrix, CompressionMethod
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.holders import (
    DOUBLE_MATRIX,
    GENERAL_MATRIX,
    INT32,
    INT32_PAIR_VECTOR,
    INT32_VECTOR,
    MATRIX,
    POSTERIOR,
    TOKEN,
    TOKEN_VECTOR,
    VECTOR,
)
from nnet3tools.io.posterior import Posterior
from support.shell import Shell

RNG = np.random.default_rng(0)
FEATS = {
    key: RNG.normal(2, 3, size=(size, 4)).astype(np.float32)
    for key, size in {"u1": 9, "u2": 14, "u3": 5}.items()
}


@pytest.fixture
def feats(shell: Shell) -> str:
    return shell.write("feats", MATRIX, FEATS)


def assert_tables_equal(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], rtol: float = 0
) -> None:
    assert list(found) == list(expected)
    for key, value in found.items():
        np.testing.assert_allclose(value, expected[key], rtol=rtol, atol=rtol)


# -- copies


def test_copy_feats(shell: Shell, feats: str) -> None:
    log = shell("copy-feats", "--write-num-frames=ark,t:lengths", feats, "ark,scp:1.ark,1.scp")
    assert "Copied 3 feature matrices." in log
    assert Path("lengths").read_text() == "u1 9 \nu2 14 \nu3 5 \n"
    assert Path("1.ark").read_bytes() == Path("feats").read_bytes()
    shell("copy-feats", "scp:1.scp", "ark,t:2.ark")
    assert_tables_equal(shell.read("2.ark"), FEATS, 1e-5)
    shell("copy-feats", "--compress", "--compression-method=3", feats, "ark:3.ark")
    for key, matrix in shell.read("3.ark", GENERAL_MATRIX).items():
        assert isinstance(matrix, CompressedMatrix)
        expected = CompressedMatrix.from_dense(FEATS[key], CompressionMethod.TWO_BYTE_AUTO)
        np.testing.assert_array_equal(matrix.data, expected.data)
    shell("copy-feats", "ark:3.ark", "ark:4.ark")
    assert isinstance(shell.read("4.ark", GENERAL_MATRIX)["u1"], np.ndarray)
    shell("copy-feats", "--binary=false", "1.ark:3", "one.mat")
    assert Path("one.mat").read_text().count("\n") == 10


def test_copy_feats_refusals(shell: Shell, feats: str) -> None:
    assert "1 to 7" in shell.error("copy-feats", "--compression-method=8", feats, "ark:x")
    assert "single files" in shell.error("copy-feats", "--compress", "feats:3", "x")
    assert "Cannot mix archives" in shell.error("copy-feats", feats, "x")
    shell("copy-feats", shell.write("none", MATRIX, {}), "ark:x", status=1)


def test_copy_vector(shell: Shell) -> None:
    table = shell.write("v", VECTOR, {"a": np.array([1, 2, 3], np.float32)})
    assert "setting dim to 2 scaled by 0.5" in shell(
        "copy-vector", "--change-dim=2", "--scale=0.5", table, "ark:w"
    )
    assert shell.read("w", VECTOR)["a"].tolist() == [0.5, 1]
    shell("copy-vector", "--change_dim=5", "--binary=false", "v:2", "one.vec")
    assert Path("one.vec").read_text() == " [ 1 2 3 0 0 ]\n"
    assert "Copied 1 vectors." in shell("copy-vector", table, "ark,t:-")
    assert shell.out == "a  [ 1 2 3 ]\n"


def test_copy_int_vector(shell: Shell) -> None:
    table = shell.write("v", INT32_VECTOR, {"a": np.array([3, 1], np.int32)})
    assert "Copied 1 vectors of int32." in shell("copy-int-vector", table, "ark,t:-")
    assert shell.out == "a 3 1 \n"
    Path("one").write_text("[ 4 5 ]\n")
    shell("copy-int-vector", "one", "two")
    shell("copy-int-vector", "--binary=false", "two", "-")
    assert shell.out == "[ 4 5 ]\n"


# -- sizes


def test_dimensions_and_lengths(shell: Shell, feats: str) -> None:
    shell("feat-to-dim", feats, "-")
    assert shell.out == "4\n"
    shell("feat-to-dim", feats, "ark:dims")
    assert shell.read("dims", INT32) == dict.fromkeys(FEATS, 4)
    shell("feat-to-len", feats)
    assert shell.out == "28\n"
    shell("feat-to-len", feats, "ark:lengths")
    assert shell.read("lengths", INT32) == {key: len(value) for key, value in FEATS.items()}
    empty = shell.write("none", MATRIX, {})
    assert "Could not read any features" in shell.error("feat-to-dim", empty, "-")


# -- subsets and spliced frames


def test_subset(shell: Shell, feats: str) -> None:
    Path("list").write_text("u3 x\nu1\nu9\n")
    shell("subset-feats", "--n=2", feats, "ark:o")
    assert list(shell.read("o")) == ["u1", "u2"]
    assert " Wrote 2 out of 3 utterances." in shell(
        "subset-feats", "--include=list", feats, "ark:o"
    )
    assert list(shell.read("o")) == ["u1", "u3"]
    shell("subset-feats", "--exclude=list", feats, "ark:o")
    assert list(shell.read("o")) == ["u2"]
    assert "at least 1" in shell.error("subset-feats", "--n=0", feats, "ark:o")
    assert "--include and --n" in shell.error(
        "subset-feats", "--include=list", "--n=2", feats, "ark:o"
    )
    Path("list").write_text("u1\n\n")
    assert "line 2 is empty" in shell.error("subset-feats", "--exclude=list", feats, "ark:o")


def test_select(shell: Shell, feats: str) -> None:
    shell("select-feats", "2,1-3,1-0", feats, "ark:o")
    assert_tables_equal(shell.read("o"), {k: v[:, [2, 1, 2, 3, 1, 0]] for k, v in FEATS.items()})
    assert "column 4 of '0-4'" in shell.error("select-feats", "0-4", feats, "ark:o")
    assert "expected columns" in shell.error("select-feats", "a", feats, "ark:o")
    empty = shell.write("none", MATRIX, {})
    assert "Empty archive" in shell("select-feats", "0", empty, "ark:p")


def test_splice(shell: Shell, feats: str) -> None:
    shell("splice-feats", "--left-context=2", "--right-context=1", feats, "ark:o")
    for key, found in shell.read("o").items():
        wide = np.pad(FEATS[key], ((2, 1), (0, 0)), mode="edge")
        expected = np.hstack([wide[i : i + len(FEATS[key])] for i in range(4)])
        np.testing.assert_array_equal(found, expected)
    assert "must not be negative" in shell.error(
        "splice-feats", "--left-context=-1", feats, "ark:p"
    )


def test_subsample(shell: Shell, feats: str) -> None:
    log = shell("subsample-feats", "--n=3", "--offset=6", feats, "ark:o")
    assert_tables_equal(shell.read("o"), {k: v[6::3] for k, v in FEATS.items() if len(v) > 6})
    assert "For utterance u3, output would have no rows" in log
    assert "Processed 2 feature matrices; 1 with errors." in log
    assert "Processed 28 input frames and 4 output frames." in log
    shell("subsample-feats", "--n=-2", feats, "ark:o")
    assert_tables_equal(shell.read("o"), {k: np.repeat(v, 2, axis=0) for k, v in FEATS.items()})
    assert "must not be 0" in shell.error("subsample-feats", "--n=0", feats, "ark:o")


def test_paste(shell: Shell, feats: str) -> None:
    other = shell.write("other", MATRIX, {"u1": FEATS["u1"][:-1], "u2": FEATS["u2"][:-3]})
    log = shell("paste-feats", "--length-tolerance=1", feats, other, "ark:o")
    assert_tables_equal(shell.read("o"), {"u1": np.hstack([FEATS["u1"][:-1]] * 2)})
    assert "Length mismatch 14 vs. 11 for utt u2 exceeds tolerance 1" in log
    assert "Missing utt u3 from input ark:other" in log
    assert "Done 1 utts, errors on 2" in log
    shell("paste-feats", feats, other, "ark:o", status=255)
    shell("paste-feats", "--binary=false", "feats:3", "feats:3", "one.mat")
    assert len(Path("one.mat").read_text().splitlines()[1].split()) == 8
    shell("paste-feats", "feats:3", "other:3", "two.mat", status=1)
    assert not Path("two.mat").exists()


# -- transforms


def test_transforms(shell: Shell, feats: str) -> None:
    linear = RNG.normal(size=(3, 4)).astype(np.float32)
    affine = RNG.normal(size=(4, 5)).astype(np.float32)
    shell.write("t", MATRIX, {"s1": linear, "s2": affine})
    shell("copy-matrix", "t:3", "lda.mat")
    log = shell("transform-feats", "lda.mat", feats, "ark:o")
    assert_tables_equal(shell.read("o"), {k: v @ linear.T for k, v in FEATS.items()}, 1e-5)
    logdet = 0.5 * np.linalg.slogdet(linear.astype(float) @ linear.T)[1]
    assert f"Overall average [pseudo-]logdet is {logdet:.4g}"[:36] in log
    assert "Applied transform to 3 utterances; 0 had errors." in log
    utt2spk = shell.write("utt2spk", TOKEN, {"u1": "s1", "u2": "s2", "u3": "s3"})
    log = shell("transform-feats", f"--utt2spk={utt2spk}", "ark:t", feats, "ark:o")
    expected = {
        "u1": FEATS["u1"] @ linear.T,
        "u2": FEATS["u2"] @ affine[:, :4].T + affine[:, 4],
    }
    assert_tables_equal(shell.read("o"), expected, 1e-5)
    assert "No fMLLR transform available for utterance u3" in log
    wide = shell.write("wide", MATRIX, {"a": np.ones((3, 6), np.float32)})
    log = shell("transform-feats", "lda.mat", wide, "ark:p", status=1)
    assert "has bad dimension 3x4 versus feat dim 6" in log


# -- mean and variance


def test_statistics(shell: Shell, feats: str) -> None:
    shell("compute-cmvn-stats", feats, "ark:utt")
    for key, stats in shell.read("utt", DOUBLE_MATRIX).items():
        wide = FEATS[key].astype(float)
        np.testing.assert_allclose(stats[0], [*wide.sum(axis=0), len(wide)], rtol=1e-6)
        np.testing.assert_allclose(stats[1], [*(wide**2).sum(axis=0), 0], rtol=1e-6)
    spk2utt = shell.write("spk2utt", TOKEN_VECTOR, {"s": ["u1", "u9", "u3"], "t": ["u8"]})
    log = shell("compute-cmvn-stats", f"--spk2utt={spk2utt}", feats, "ark:spk")
    assert "Did not find features for utterance u9" in log
    assert "No stats accumulated for speaker t" in log
    assert "stats for 2 utterances; 2 had errors." in log
    whole = np.concatenate([FEATS["u1"], FEATS["u3"]]).astype(float)
    (stats,) = shell.read("spk", DOUBLE_MATRIX).values()
    np.testing.assert_allclose(stats[0, :4], whole.sum(axis=0), rtol=1e-6)
    shell("compute-cmvn-stats", "--binary=false", feats, "global")
    assert Path("global").read_text().split()[5] == "28"
    assert "--spk2utt" in shell.error("compute-cmvn-stats", f"--spk2utt={spk2utt}", feats, "g2")


def test_weighted_statistics(shell: Shell, feats: str) -> None:
    weights = {"u1": RNG.uniform(size=9).astype(np.float32), "u2": np.ones(3, np.float32)}
    table = shell.write("w", VECTOR, weights)
    log = shell("compute-cmvn-stats", f"--weights={table}", feats, "ark:o")
    assert "No weights available for utterance u3" in log
    assert "Weights for utterance u2 have wrong dimension 3 vs. 14" in log
    stats = shell.read("o", DOUBLE_MATRIX)
    assert list(stats) == ["u1"]
    w = weights["u1"].astype(float)
    np.testing.assert_allclose(stats["u1"][0, :4], w @ FEATS["u1"], rtol=1e-5)
    np.testing.assert_allclose(stats["u1"][1, :4], w @ FEATS["u1"] ** 2, rtol=1e-5)
    np.testing.assert_allclose(stats["u1"][0, 4], w.sum(), rtol=1e-6)


def test_normalisation(shell: Shell, feats: str) -> None:
    shell("compute-cmvn-stats", feats, "ark:utt")
    log = shell("apply-cmvn", "--norm-vars=true", "ark:utt", feats, "ark:o")
    assert "Applied cepstral mean and variance normalization to 3 utterances, errors on 0" in log
    for key, found in shell.read("o").items():
        np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(found.std(axis=0), 1, rtol=1e-4)
        assert found.shape == FEATS[key].shape
    shell("apply-cmvn", "--norm-vars=true", "--reverse", "ark:utt", "ark:o", "ark:back")
    assert_tables_equal(shell.read("back"), FEATS, 1e-4)
    shell("apply-cmvn", "--skip-dims=1:3", "ark:utt", feats, "ark:o")
    for key, found in shell.read("o").items():
        np.testing.assert_array_equal(found[:, [1, 3]], FEATS[key][:, [1, 3]])
        np.testing.assert_allclose(found[:, [0, 2]].mean(axis=0), 0, atol=1e-5)
    shell("apply-cmvn", "--norm-means=false", "ark:utt", feats, "ark:o")
    assert_tables_equal(shell.read("o"), FEATS)


def test_normalisation_by_speaker_and_globally(shell: Shell, feats: str) -> None:
    shell.write("spk", DOUBLE_MATRIX, {"s": np.array([[2.0, 4, 6, 8, 2], [9, 9, 9, 9, 0]])})
    utt2spk = shell.write("utt2spk", TOKEN, {"u1": "s", "u2": "s"})
    log = shell("apply-cmvn", f"--utt2spk={utt2spk}", "ark:spk", feats, "ark:o")
    assert "No normalization statistics available for key u3" in log
    assert_tables_equal(
        shell.read("o"), {k: FEATS[k] - np.float32([1, 2, 3, 4]) for k in ("u1", "u2")}, 1e-6
    )
    shell("compute-cmvn-stats", feats, "global")
    shell("apply-cmvn", "global", feats, "ark:o")
    mean = np.concatenate(list(FEATS.values())).mean(axis=0)
    assert_tables_equal(shell.read("o"), {k: v - mean for k, v in FEATS.items()}, 1e-5)


def test_statistics_that_do_not_fit(shell: Shell, feats: str) -> None:
    shell.write("s", DOUBLE_MATRIX, {"u1": np.ones((2, 4))})
    Path("out").write_text("kept")
    error = shell.error("apply-cmvn", "ark:s", feats, "ark:out")
    assert "key 'u1': Dim mismatch: cmvn 2x4, feats 9x4" in error
    assert Path("out").read_text() == "kept"
    shell.write("s", DOUBLE_MATRIX, {"u1": np.zeros((2, 5))})
    assert "count = 0" in shell.error("apply-cmvn", "ark:s", feats, "ark:out")
    shell.write("s", DOUBLE_MATRIX, {"u1": np.ones((1, 5))})
    assert "no variance stats" in shell.error(
        "apply-cmvn", "--norm-vars", "ark:s", feats, "ark:out"
    )
    assert "not the mean" in shell.error(
        "apply-cmvn", "--norm-vars", "--norm-means=false", "ark:s", feats, "ark:out"
    )


@pytest.mark.parametrize("norm_vars", [False, True])
@pytest.mark.parametrize(
    ("center", "window", "least"), [(1, 5, 1), (1, 4, 1), (0, 4, 3), (0, 50, 9)]
)
def test_sliding_normalisation(
    shell: Shell, feats: str, center: int, window: int, least: int, norm_vars: bool
) -> None:
    flags = f"--center={bool(center)}", f"--norm-vars={norm_vars}"
    sizes = f"--cmn-window={window}", f"--min-cmn-window={least}"
    shell("apply-cmvn-sliding", *flags, *sizes, feats, "ark:o")
    for key, found in shell.read("o").items():
        wide = FEATS[key].astype(float)
        for t, row in enumerate(found):
            if center:
                first = min(max(t - window // 2, 0), max(len(wide) - window, 0))
                part = wide[first : first + window]
            else:
                last = max(t + 1, least)
                first = max(t - window, 0) - max(last - len(wide), 0)
                part = wide[max(first, 0) : last]
            expected = wide[t] - part.mean(axis=0)
            if norm_vars:
                expected /= part.std(axis=0)
            np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-4)


def test_sliding_over_constant_features(shell: Shell) -> None:
    table = shell.write("f", MATRIX, {"a": np.ones((9, 2), np.float32)})
    log = shell("apply-cmvn-sliding", "--norm-vars", "--max-warnings=2", table, "ark:o")
    assert log.count("floored 2 elements") == 2
    assert log.count("Suppressing the remaining") == 1
    assert not shell.read("o")["a"].any()
    assert "--cmn-window=0" in shell.error("apply-cmvn-sliding", "--cmn-window=0", table, "ark:o")


def test_voiced_frames(shell: Shell, feats: str) -> None:
    marks = {"u1": np.arange(9) % 2, "u2": np.ones(3), "u3": np.zeros(5)}
    vad = shell.write("vad", VECTOR, {k: v.astype(np.float32) for k, v in marks.items()})
    log = shell("select-voiced-frames", feats, vad, "ark:o")
    assert_tables_equal(shell.read("o"), {"u1": FEATS["u1"][1::2]})
    assert "Mismatch in number for frames 14 for features and VAD 3, for utterance u2" in log
    assert "No features were judged as voiced for utterance u3" in log
    assert "processed 1 utterances, 2 had errors." in log


def test_means_of_vectors(shell: Shell) -> None:
    vectors = {key: RNG.normal(size=3).astype(np.float32) for key in "abc"}
    table = shell.write("v", VECTOR, vectors)
    shell("ivector-mean", table, "mean.vec")
    found = np.array(Path("mean.vec").read_text().split()[1:-1], float)
    np.testing.assert_allclose(found, np.mean(list(vectors.values()), axis=0), rtol=1e-5)
    speakers = {"s": ["a", "c"], "t": ["x"], "u": ["b"]}
    spk2utt = shell.write("spk2utt", TOKEN_VECTOR, speakers)
    log = shell("ivector-mean", spk2utt, table, "ark:o", "ark:n")
    assert_tables_equal(
        shell.read("o", VECTOR), {"s": (vectors["a"] + vectors["c"]) / 2, "u": vectors["b"]}, 1e-6
    )
    assert shell.read("n", INT32) == {"s": 2, "u": 1}
    assert "No iVector present in input for utterance x" in log
    assert "Computed mean of 2 speakers (1 with no utterances), consisting of 3 utterances" in log
    assert "No iVectors read" in shell.error("ivector-mean", shell.write("e", VECTOR, {}), "x")


# -- sums


def test_sums_over_tables(shell: Shell, feats: str) -> None:
    others = {"u1": FEATS["u1"] + 1, "u2": FEATS["u2"], "u3": FEATS["u3"][:2]}
    other = shell.write("other", MATRIX, others)
    log = shell("matrix-sum", "--scale1=2", "--scale2=-1", feats, other, "ark:o")
    expected = {"u1": FEATS["u1"] - 1, "u2": FEATS["u2"], "u3": 2 * FEATS["u3"]}
    assert_tables_equal(shell.read("o"), expected, 1e-5)
    assert "Dimension mismatch for utterance u3 : 2 by 4 for system 2, rspecifier: ark:other" in log
    assert "with a total of 6 matrices across 2 different systems" in log
    shell("matrix-sum", "--average", feats, feats, "ark:o")
    assert_tables_equal(shell.read("o"), FEATS, 1e-6)
    one = shell.write("one", MATRIX, {"u1": FEATS["u1"]})
    log = shell("matrix-sum", feats, one, "ark:o", status=1)
    assert "Produced output for 3 utterances; 2 total missing matrices" in log


def test_sums_of_one_table_and_of_files(shell: Shell) -> None:
    matrices = {"a": np.ones((2, 3), np.float32), "b": np.full((2, 3), 4, np.float32)}
    table = shell.write("m", MATRIX, {**matrices, "c": np.ones((1, 3), np.float32)})
    log = shell("matrix-sum", "--binary=false", table, "sum.mat")
    assert "Dimension mismatch for key c: 1 by 3 vs. 2 by 3" in log
    assert "Summed 2 matrices, 1 with errors; wrote sum to sum.mat" in log
    assert Path("sum.mat").read_text() == " [\n  5 5 5 \n  5 5 5 ]\n"
    shell("matrix-sum", "--average", "--binary=false", "sum.mat", "sum.mat", "mean.mat")
    assert Path("mean.mat").read_text() == Path("sum.mat").read_text()
    assert "--average" in shell.error("matrix-sum", "--average", table, "x")
    Path("small.mat").write_text(" [\n  1 2 ]\n")
    assert "small.mat: 1 by 2, but" in shell.error("matrix-sum", "sum.mat", "small.mat", "x")
    shell("matrix-sum", shell.write("none", MATRIX, {}), "x", status=1)


def test_vector_sums(shell: Shell) -> None:
    vectors = {"a": np.array([1, 2], np.float32), "b": np.array([5, 8], np.float32)}
    table = shell.write("v", VECTOR, vectors)
    shell("vector-sum", table, table, "ark:o")
    assert_tables_equal(shell.read("o", VECTOR), {k: 2 * v for k, v in vectors.items()})
    shell("vector-sum", "--average", "--binary=false", table, "mean.vec")
    assert Path("mean.vec").read_text() == " [ 3 5 ]\n"
    Path("long.vec").write_text(" [ 1 1 1 ]\n")
    shell("vector-sum", "--binary=false", "mean.vec", "long.vec", "-")
    assert shell.out == " [ 4 6 1 ]\n"


def test_sums_of_rows_and_sizes(shell: Shell, feats: str) -> None:
    assert "Summed rows 3 matrices, 28 rows in total." in shell("matrix-sum-rows", feats, "ark:o")
    assert_tables_equal(shell.read("o", VECTOR), {k: v.sum(axis=0) for k, v in FEATS.items()}, 1e-5)
    shell("vector-sum", "ark:o", "sum.vec")
    shell("copy-vector", "--binary=false", "sum.vec", "-")
    found = np.array(shell.out.split()[1:-1], float)
    np.testing.assert_allclose(found, np.concatenate(list(FEATS.values())).sum(axis=0), rtol=1e-5)
    shell("matrix-dim", feats)
    assert shell.out == "u1\t9\t4\nu2\t14\t4\nu3\t5\t4\n"
    shell("matrix-dim", "feats:3")
    assert shell.out == "9\t4\n"
    empty = shell.write("none", MATRIX, {})
    assert "No features read" in shell("matrix-dim", empty, status=1)
    shell("matrix-sum-rows", empty, "ark:o", status=1)


def test_cuda_compiled(shell: Shell) -> None:
    shell("cuda-compiled", status=0 if importlib.util.find_spec("cupy") else 1)


# -- alignments


def test_alignments(shell: Shell) -> None:
    Path("topo").write_text(
        "<Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones> <State> 0 <ForwardPdfClass> 0 "
        "<SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State> "
        "</TopologyEntry> </Topology>\n"
    )
    Path("tree").write_text(
        "ContextDependency 1 0 ToPdf TE -1 2 ( TE 0 3 ( NULL CE 0 CE 1 ) TE 0 3 ( NULL CE 2 CE 3 )"
        " ) EndContextDependency "
    )
    Path("config").write_text("input-node name=input dim=4\noutput-node name=output input=input\n")
    shell("nnet3-init", "config", "0.raw")
    shell("nnet3-am-init", "tree", "topo", "0.raw", "0.mdl")
    shell("am-info", "0.mdl")
    assert shell.out == (
        "number of phones 2\nnumber of pdfs 4\nnumber of transition-ids 4\n"
        "number of transition-states 2\n"
    )
    shell("tree-info", "tree")
    assert shell.out == "num-pdfs 4\ncontext-width 1\ncentral-position 0\n"
    table = shell.write("ali", INT32_VECTOR, {"u": np.array([1, 1, 2, 3, 4], np.int32)})
    log = shell("ali-to-pdf", "0.mdl", table, "ark:pdf")
    assert "Converted 1 alignments to pdf sequences." in log
    assert shell.read("pdf", INT32_VECTOR)["u"].tolist() == [2, 2, 0, 3, 1]
    shell("ali-to-post", "ark:pdf", "ark:post")
    dense = to_dense(shell.read("post", POSTERIOR)["u"].to_sparse(4))
    np.testing.assert_array_equal(dense, np.eye(4)[[2, 2, 0, 3, 1]])
    ids = Posterior.from_counts([2, 1], [2, 1, 4], [0.25, 0.75, 1])
    posts = shell.write("ids", POSTERIOR, {"u": ids, "v": ids})
    shell("post-to-pdf-post", "0.mdl", posts, "ark:post")
    dense = to_dense(shell.read("post", POSTERIOR)["v"].to_sparse(4))
    np.testing.assert_allclose(dense, [[0.25, 0, 0.75, 0], [0, 1, 0, 0]])
    shell("post-to-tacc", "--binary=false", "0.mdl", posts, "-")
    assert shell.out == " [ 0 1.5 0.5 0 2 ]\n"
    log = shell("post-to-tacc", "--per-pdf", "--binary=false", "0.mdl", posts, "-")
    assert shell.out == " [ 0.5 2 1.5 0 ]\n"
    assert "transition stats over 2 utterances" in log
    bad = shell.write("bad", INT32_VECTOR, {"u": np.array([1, 5], np.int32)})
    assert "key 'u': transition id 5 in place 1" in shell.error("ali-to-pdf", "0.mdl", bad, "ark:x")


# -- phones of alignments


def _write_model(folder: Path) -> None:
    """Write a model of phones 1 and 2 with two states each; odd transition ids are self-loops."""
    states = "".join(
        f"<State> {i} <PdfClass> {i} <Transition> {i} 0.5 <Transition> {i + 1} 0.5 </State> "
        for i in range(2)
    )
    (folder / "1.mdl").write_text(
        "<TransitionModel> <Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones> "
        f"{states}<State> 2 </State> </TopologyEntry> </Topology> "
        "<Triples> 4 1 0 0 1 1 1 2 0 2 2 1 3 </Triples> "
        "<LogProbs> [ 0" + " -0.7" * 8 + " ] </LogProbs> </TransitionModel> rest"
    )


@pytest.mark.parametrize(
    ("ids", "phones", "lengths"),
    [
        ([1, 1, 2, 3, 4, 5, 6, 8], [1, 2], [5, 3]),
        ([2, 1, 1, 4, 3, 6, 5, 8], [1, 2], [5, 3]),
        ([2, 4, 2, 4, 6, 8], [1, 1, 2], [2, 2, 2]),
        ([2, 4, 3, 3, 2, 4], [1, 1], [4, 2]),
        ([2, 6, 8], [1, 2], [1, 2]),
        ([6, 8, 7, 6], [2, 2], [3, 1]),
        ([], [], []),
    ],
    ids=["loops first", "loops last", "no loops", "a phone twice", "broken off", "cut", "empty"],
)
def test_phones_of_alignments(
    shell: Shell, ids: list[int], phones: list[int], lengths: list[int]
) -> None:
    _write_model(shell.folder)
    table = shell.write("ali", INT32_VECTOR, {"u": np.array(ids, np.int32)})
    assert "Done 1 utterances." in shell("ali-to-phones", "1.mdl", table, "ark:phones")
    assert shell.read("phones", INT32_VECTOR)["u"].tolist() == phones
    shell("ali-to-phones", "--per-frame=true", "1.mdl", table, "ark:frames")
    assert shell.read("frames", INT32_VECTOR)["u"].tolist() == np.repeat(phones, lengths).tolist()
    shell("ali-to-phones", "--write-lengths=true", "1.mdl", table, "ark:pairs")
    pairs = shell.read("pairs", INT32_PAIR_VECTOR)["u"].tolist()
    assert pairs == [list(pair) for pair in zip(phones, lengths, strict=True)]
    shell("ali-to-phones", "--write-lengths=true", "1.mdl", table, "ark,t:text")
    assert shell.read("text", INT32_PAIR_VECTOR)["u"].tolist() == pairs
    shell("ali-to-phones", "--ctm-output", "1.mdl", table, "ctm")
    starts = np.cumsum([0, *lengths])
    assert Path("ctm").read_text() == "".join(
        f"u 1 {s / 100:.2f} {n / 100:.2f} {p}\n"
        for s, n, p in zip(starts, lengths, phones, strict=False)
    )


def test_phones_of_no_alignment(shell: Shell) -> None:
    _write_model(shell.folder)
    for ids, message in (([9], "transition id 9"), ([1, 3], "self-loops of different states")):
        table = shell.write("ali", INT32_VECTOR, {"u": np.array(ids, np.int32)})
        line = shell.error("ali-to-phones", "1.mdl", table, "ark:x")
        assert f"key 'u': {message}" in line or message in line
    assert "do not go together" in shell.error(
        "ali-to-phones", "--per-frame=true", "--write-lengths=true", "1.mdl", table, "ark:x"
    )


def test_a_transition_model_is_copied_alone(shell: Shell) -> None:
    _write_model(shell.folder)
    assert "Copied transition model." in shell("copy-transition-model", "1.mdl", "binary")
    shell("copy-transition-model", "--binary=false", "binary", "text")
    words = Path("text").read_text().split()
    assert words[-1] == "</TransitionModel>"
    assert words == Path("1.mdl").read_text().removesuffix(" rest").split()


# -- which frames are speech; changed statistics


@pytest.mark.parametrize("context", [0, 2, 20])
@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_voiced_frames_are_those_of_a_plain_loop(
    shell: Shell, feats: str, context: int, scale: float
) -> None:
    shell(
        "compute-vad", f"--vad-frames-context={context}", "--vad-energy-threshold=1",
        f"--vad-energy-mean-scale={scale}", feats, "ark:vad",
    )  # fmt: skip
    found = shell.read("vad", VECTOR)
    for key, features in FEATS.items():
        energy = features[:, 0]
        limit = 1 + scale * energy.mean()
        expected = []
        for t in range(len(energy)):
            window = energy[max(t - context, 0) : t + context + 1]
            enough = np.float32(0.6) * np.float32(len(window))
            expected.append(float((window > limit).sum() >= enough))
        assert found[key].tolist() == expected


def test_utterances_without_speech(shell: Shell) -> None:
    table = shell.write("f", MATRIX, {"a": np.zeros((3, 2), np.float32), "b": FEATS["u1"] + 50})
    log = shell("compute-vad", "--omit-unvoiced-utts=true", table, "ark:vad")
    assert "No frames were judged voiced for utterance a" in log
    assert "processed 1 utterances successfully; 0 had empty features, and 1 were" in log
    assert list(shell.read("vad", VECTOR)) == ["b"]
    assert "between 0 and 1" in shell.error(
        "compute-vad", "--vad-proportion-threshold=1", table, "ark:x"
    )


def test_modify_cmvn_stats(shell: Shell, feats: str) -> None:
    shell("compute-cmvn-stats", feats, "ark:stats")
    assert "Modified 3 sets of stats." in shell("modify-cmvn-stats", "1:3", "ark:stats", "ark:fake")
    shell("apply-cmvn", "--norm-vars=true", "ark:fake", feats, "ark:normal")
    for key, found in shell.read("normal").items():
        np.testing.assert_allclose(found[:, [1, 3]], FEATS[key][:, [1, 3]], atol=1e-5)
        np.testing.assert_allclose(found[:, [0, 2]].mean(axis=0), 0, atol=1e-5)
    shell("modify-cmvn-stats", "--convert-to-mean-and-var=true", "ark:stats", "ark:plain")
    found = shell.read("plain", DOUBLE_MATRIX)["u2"]
    expected = [FEATS["u2"].mean(axis=0), FEATS["u2"].var(axis=0)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert "cannot skip the dimensions [4]" in shell.error(
        "modify-cmvn-stats", "4", "ark:stats", "ark:x"
    )
    assert "colon-separated" in shell.error("modify-cmvn-stats", "1:x", "ark:stats", "ark:y")


# -- normalization with past frames only


def online_by_hand(
    features: np.ndarray, before: np.ndarray | None, everything: np.ndarray, **kept: object
) -> np.ndarray:
    """Normalize frame by frame, with a window, the speaker's earlier frames and all frames."""
    window, speaker_frames, global_frames = 6, 4, 3
    rows = []
    for t in range(len(features)):
        mine = features[max(0, t - window + 1) : t + 1].astype(np.float64)
        weights, parts = [len(mine)], [mine]
        for other, most in ((before, speaker_frames), (everything, global_frames)):
            if other is not None:
                missing = min(window - sum(weights), most)
                if other is before:
                    missing = min(missing, len(other))
                weights.append(missing)
                parts.append(other.astype(np.float64))
        total = sum(weights)
        mean = sum(w * p.mean(axis=0) for w, p in zip(weights, parts, strict=True)) / total
        square = sum(w * (p**2).mean(axis=0) for w, p in zip(weights, parts, strict=True)) / total
        row = features[t] - mean
        rows.append(row / np.sqrt(square - mean**2) if kept.get("norm_vars") else row)
    return np.array(rows)


@pytest.mark.parametrize("norm_vars", [False, True])
@pytest.mark.parametrize("by_speaker", [False, True])
def test_online_normalisation(shell: Shell, feats: str, by_speaker: bool, norm_vars: bool) -> None:
    shell("compute-cmvn-stats", feats, "all.stats")
    words = [
        "--cmn-window=6", "--speaker-frames=4", "--global-frames=3", f"--norm-vars={norm_vars}"
    ]  # fmt: skip
    if by_speaker:
        Path("spk2utt").write_text("s u1 u3\nr u2\n")
        words.append("--spk2utt=ark:spk2utt")
    log = shell("apply-cmvn-online", *words, "all.stats", feats, "ark:o")
    assert "Applied online CMVN to 3 files, or 28 frames." in log
    everything = np.concatenate(list(FEATS.values()))
    found = shell.read("o")
    assert list(found) == (["u1", "u3", "u2"] if by_speaker else ["u1", "u2", "u3"])
    for key, features in FEATS.items():
        before = FEATS["u1"] if by_speaker and key == "u3" else None
        expected = online_by_hand(features, before, everything, norm_vars=norm_vars)
        np.testing.assert_allclose(found[key], expected, rtol=2e-4, atol=2e-4)


def test_online_normalisation_refusals(shell: Shell, feats: str) -> None:
    shell("compute-cmvn-stats", feats, "all.stats")
    name = "apply-cmvn-online"
    assert "--global-frames" in shell.error(
        name, "--global-frames=700", "all.stats", feats, "ark:o"
    )
    assert "but not the mean" in shell.error(
        name, "--norm-means=false", "--norm-vars=true", "all.stats", feats, "ark:o"
    )
    assert "[4]" in shell.error(name, "--skip-dims=4", "all.stats", feats, "ark:o")
    other = shell.write("other", MATRIX, {"a": np.ones((2, 3), np.float32)})
    assert "features of dimension 3" in shell.error(name, "all.stats", other, "ark:o")
    assert not Path("o").exists()


@pytest.mark.parametrize("frames", [0, 2, -3, 100])
def test_shift_feats(shell: Shell, feats: str, frames: int) -> None:
    log = shell("shift-feats", f"--shift={frames}", feats, "ark:o")
    assert f"Shifted 3 features by {frames} frames; 0 with errors." in log
    for key, found in shell.read("o").items():
        size = len(FEATS[key])
        expected = [FEATS[key][min(max(t - frames, 0), size - 1)] for t in range(size)]
        np.testing.assert_array_equal(found, expected)


def test_concat_feats(shell: Shell, feats: str) -> None:
    shell("copy-feats", feats, "ark,scp:f.ark,f.scp")
    first, second = (line.split()[1] for line in Path("f.scp").read_text().splitlines()[:2])
    shell("concat-feats", first, second, "out")
    shell("copy-matrix", "--binary=false", "out", "text")
    found = np.array([row.split()[:4] for row in Path("text").read_text().splitlines()[1:]], float)
    np.testing.assert_allclose(found, np.concatenate([FEATS["u1"], FEATS["u2"]]), rtol=1e-5)
    shell("select-feats", "0-2", feats, "ark,scp:g.ark,g.scp")
    other = Path("g.scp").read_text().split()[1]
    assert "has dimension 3" in shell.error("concat-feats", first, other, "out2")
    assert not Path("out2").exists()
