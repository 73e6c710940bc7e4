"""The programs around examples and training, as a user runs them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.cli.programs import main_of
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.holders import GENERAL_MATRIX, MATRIX, POSTERIOR
from nnet3tools.io.posterior import Posterior
from nnet3tools.io.table import SequentialTableReader, TableWriter
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.training.example import EXAMPLE, NnetExample, frames_io
from support.training_helpers import example, minibatch, network

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch, capfd) -> Run:
    """run("nnet3-x", "--option", "arg", ..., status=0) -> what it logged."""
    monkeypatch.chdir(tmp_path)

    def call(name: str, *args: str, status: int = 0) -> str:
        capfd.readouterr()
        found = main_of(name)(list(args))
        log = capfd.readouterr().err
        assert found == status, log
        return log

    return call


def fails(run: Run, *args: str, status: int = 255) -> str:
    """The one error line of a program that must fail."""
    log = run(*args, status=status)
    errors = [line for line in log.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 1
    assert "Traceback" not in log
    return errors[0]


def write_table(wspecifier, holder, items) -> None:
    with TableWriter(wspecifier, holder) as writer:
        for key, value in items:
            writer.write(key, value)


def read_examples(path: str) -> list:
    return list(SequentialTableReader(f"ark:{path}", EXAMPLE))


def keys(path: str) -> list[str]:
    return [key for key, _ in read_examples(path)]


def write_data(num_utterances: int = 4, dim: int = 3) -> None:
    rng = np.random.default_rng(0)
    feats, posts, targets = [], [], []
    for i in range(num_utterances):
        frames = 17 + i
        feats.append((f"u{i}", rng.normal(size=(frames, dim)).astype(np.float32)))
        pdfs = rng.integers(0, 5, frames)
        posts.append((f"u{i}", Posterior.from_counts(np.ones(frames, int), pdfs, np.ones(frames))))
        targets.append((f"u{i}", rng.normal(size=(frames, 5)).astype(np.float32)))
    write_table("ark:feats.ark", GENERAL_MATRIX, feats)
    write_table("ark:post.ark", POSTERIOR, posts)
    write_table("ark:targets.ark", MATRIX, targets)


def get_egs(run: Run, *options: str) -> str:
    return run(
        "nnet3-get-egs",
        "--num-pdfs=5",
        "--left-context=1",
        "--right-context=1",
        *options,
        "ark:feats.ark",
        "ark:post.ark",
        "ark:a.egs",
    )


def test_from_features_to_a_trained_model(run):
    write_data(20)
    log = get_egs(run, "--num-frames=4")
    assert "Split 20 utts, with total length 530 frames" in log
    run("nnet3-shuffle-egs", "--srand=3", "ark:a.egs", "ark:b.egs")
    assert sorted(keys("a.egs")) == sorted(keys("b.egs"))
    assert keys("a.egs") != keys("b.egs")
    run("nnet3-merge-egs", "--minibatch-size=16,1:15", "ark:b.egs", "ark:c.egs")
    write_nnet(network(), "0.raw")
    log = run("nnet3-train", "--use-gpu=no", "0.raw", "ark:c.egs", "1.raw")
    assert "log-prob-per-frame=-" in log
    assert "Wrote model to 1.raw" in log
    before = run("nnet3-compute-prob", "0.raw", "ark:c.egs")
    after = run("nnet3-compute-prob", "1.raw", "ark:c.egs")

    def loglike(text: str) -> float:
        return float(text.split("log-likelihood for 'output' is ")[1].split()[0])

    assert loglike(after) > loglike(before)
    run("nnet3-compute-from-egs", "--use-gpu=no", "--apply-exp=true", "1.raw", "ark:c.egs", "ark:p")
    for (_, output), (_, eg) in zip(
        SequentialTableReader("ark:p", MATRIX), read_examples("c.egs"), strict=True
    ):
        assert len(output) == len(eg.io[1].indexes)
        np.testing.assert_allclose(output.sum(axis=1), 1.0, rtol=1e-5)


def test_dense_targets(run):
    write_data()
    run(
        "nnet3-get-egs-dense-targets",
        "--num-targets=5",
        "--num-frames=6",
        "ark:feats.ark",
        "ark:targets.ark",
        "ark:d.egs",
    )
    assert all(eg.io[1].dim == 5 for _, eg in read_examples("d.egs"))


def test_round_robin_and_random_copies(run):
    write_table("ark:a", EXAMPLE, [(f"e{i}", example(seed=i)) for i in range(7)])
    run("nnet3-copy-egs", "ark:a", "ark:b", "ark:c", "ark,t:d")
    assert (keys("b"), keys("c"), keys("d")) == (["e0", "e3", "e6"], ["e1", "e4"], ["e2", "e5"])
    run("nnet3-copy-egs", "--random=true", "--srand=5", "ark:a", "ark:b", "ark:c")
    assert sorted(keys("b") + keys("c")) == keys("a")
    run("nnet3-copy-egs", "--keep-proportion=2", "ark:a", "ark:b")
    assert keys("b") == [key for key in keys("a") for _ in range(2)]


def test_weights_and_outputs(run):
    write_table("ark:a", EXAMPLE, [(f"e{i}", example(seed=i)) for i in range(3)])
    Path("w").write_text("e0 0.5\ne2 2.0\n")
    Path("o").write_text("e0 output-0\ne1 output-1\ne2 output-2\n")
    log = run("nnet3-copy-egs", "--weights=ark:w", "--outputs=ark:o", "ark:a", "ark:b")
    assert "No weight for example key e1" in log
    assert "wrote 2, 1 examples had errors" in log
    copied = read_examples("b")
    assert [eg.io[1].name for _, eg in copied] == ["output-0", "output-2"]
    assert [float(eg.io[1].features.values[0]) for _, eg in copied] == [0.5, 2.0]


def test_subset(run):
    write_table("ark:a", EXAMPLE, [(f"e{i}", example(seed=i)) for i in range(20)])
    run("nnet3-subset-egs", "--n=5", "ark:a", "ark:b")
    assert len(set(keys("b"))) == 5
    run("nnet3-subset-egs", "--n=50", "--randomize-order=false", "ark:a", "ark:b")
    assert keys("b") == keys("a")


def test_a_subset_of_none_is_an_empty_archive(run):
    """Kaldi's get_egs.sh asks for one if no examples are to be kept for combination."""
    write_table("ark:a", EXAMPLE, [(f"e{i}", example(seed=i)) for i in range(3)])
    assert "Selected a subset of 0 out of 3" in run("nnet3-subset-egs", "--n=0", "ark:a", "ark:b")
    assert Path("b").read_bytes() == b""


def test_deprecated_options_of_merging_are_warned_about_once(run):
    write_table("ark:a", EXAMPLE, [("e", example())])
    options = "--measure-output-frames=true", "--minibatch-size=1"
    log = run("nnet3-merge-egs", *options, "ark:a", "ark:b")
    assert log.count("--measure-output-frames option is deprecated") == 1


def test_copying_is_exact(run):
    write_table("ark:a", EXAMPLE, [(f"e{i}", example(seed=i)) for i in range(3)])
    run("nnet3-copy-egs", "ark:a", "ark:b")
    assert Path("b").read_bytes() == Path("a").read_bytes()


def test_training_twice_gives_the_same_bytes(run):
    write_table("ark:c.egs", EXAMPLE, [(f"m{i}", minibatch(seed=i)) for i in range(3)])
    write_nnet(network(), "0.raw")
    for out in ("1.raw", "2.raw"):
        run("nnet3-train", "--use-gpu=no", "--srand=4", "0.raw", "ark:c.egs", out)
    assert Path("1.raw").read_bytes() == Path("2.raw").read_bytes()
    assert (vectorize(read_nnet("1.raw")) != vectorize(read_nnet("0.raw"))).any()


@pytest.mark.parametrize("binary", ["true", "false"])
def test_computation_cache(run, binary):
    """A program from the cache trains just as a new one does."""
    write_table("ark:c.egs", EXAMPLE, [(f"m{i}", minibatch(seed=i)) for i in range(3)])
    write_nnet(network(), "0.raw")
    train = ("nnet3-train", "--use-gpu=no", "--read-cache=cache", "--write-cache=cache")
    first = run(*train, f"--binary-write-cache={binary}", "0.raw", "ark:c.egs", "1.raw")
    assert "Could not open cached computation." in first
    assert "Wrote computation cache to cache" in first
    cache = Path("cache").read_bytes()
    assert cache.startswith(b"\0B" if binary == "true" else b"<NnetOptimizeOptions>")
    second = run(*train, f"--binary-write-cache={binary}", "0.raw", "ark:c.egs", "2.raw")
    assert "Read computation cache from cache" in second
    assert Path("cache").read_bytes() == cache
    one, two = (vectorize(read_nnet(name)) for name in ("1.raw", "2.raw"))
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    other = run(*train, "--optimization.optimize=false", "0.raw", "ark:c.egs", "2.raw")
    assert "Read computation cache" not in other


def test_a_cache_that_cannot_be_written_leaves_the_model(run):
    """As with Kaldi: the model is what the time was spent on."""
    write_table("ark:c.egs", EXAMPLE, [("m", minibatch())])
    write_nnet(network(), "0.raw")
    Path("there").mkdir()  # and then no longer: places that never were end the run at once
    words = ("nnet3-train", "--use-gpu=no", "--write-cache=there/place", "0.raw")
    log = run(*words, "ark:rmdir there; cat c.egs |", "1.raw", status=255)
    error = log.strip().splitlines()[-1]
    assert "ERROR" in error
    assert "the model was written to 1.raw, its computation cache was not: " in error
    assert "there/place" in error
    read_nnet("1.raw")


def test_computation_caches_that_do_not_fit(run):
    write_table("ark:c.egs", EXAMPLE, [("m", minibatch())])
    write_nnet(network(), "0.raw")
    run("nnet3-train", "--use-gpu=no", "--write-cache=cache", "0.raw", "ark:c.egs", "1.raw")
    whole = Path("cache").read_bytes()
    Path("cache").write_bytes(whole[: len(whole) // 2])
    words = ("nnet3-train", "--use-gpu=no", "--read-cache=cache", "0.raw", "ark:c.egs", "out")
    assert "Not using the computation cache" in run(*words)
    Path("cache").write_bytes(whole)
    nnet = network()
    nnet.read_config(
        parse_config_lines(
            "component name=a1 type=AffineComponent input-dim=9 output-dim=8\n"
            "component name=r1 type=RectifiedLinearComponent dim=8\n"
            "component name=b1 type=BatchNormComponent dim=8\n"
            "component name=a2 type=AffineComponent input-dim=8 output-dim=5\n"
        )
    )
    write_nnet(nnet, "0.raw")
    assert "Not using the computation cache" in run(*words)


# -- what users get wrong: one line, no output


def test_empty_tables(run):
    Path("none").write_bytes(b"")
    write_nnet(network(), "0.raw")
    for words in (
        ("nnet3-train", "0.raw", "ark:none", "out"),
        ("nnet3-copy-egs", "ark:none", "ark:out"),
        ("nnet3-shuffle-egs", "ark:none", "ark:out"),
        ("nnet3-merge-egs", "ark:none", "ark:out"),
        ("nnet3-subset-egs", "ark:none", "ark:out"),
        ("nnet3-get-egs", "--num-pdfs=5", "ark:none", "ark:none", "ark:out"),
        ("nnet3-get-egs-dense-targets", "ark:none", "ark:none", "ark:out"),
        ("nnet3-compute-from-egs", "--use-gpu=no", "0.raw", "ark:none", "ark:out"),
        ("nnet3-compute-prob", "0.raw", "ark:none"),
    ):
        assert "ark:none" in fails(run, *words, status=1), words
        assert not Path("out").exists(), words


def test_progress_on_targets_whose_total_is_negative(run):
    for name in ("0.raw", "1.raw"):
        write_nnet(network(seed=int(name[0])), name)
    targets = frames_io("output", 0, np.full((4, 5), -0.5, np.float32))
    eg = NnetExample([*example().io[:1], targets])
    write_table("ark:a", EXAMPLE, [("e", eg)])
    log = run("nnet3-show-progress", "0.raw", "1.raw", "ark:a")
    assert "over -10 frames." in log
    assert "Total objf change per component is [ a1:" in log


def test_nothing_to_write_is_told_by_status_1(run):
    write_table("ark:a", EXAMPLE, [("e", minibatch())])
    for words in (
        ("nnet3-copy-egs", "--keep-proportion=0", "ark:a", "ark:out"),
        ("nnet3-merge-egs", "--minibatch-size=2", "ark:a", "ark:out"),
    ):
        assert "ark:a" in fails(run, *words, status=1), words


def test_truncated_examples(run):
    write_table("ark:a", EXAMPLE, [(f"e{i}", minibatch(seed=i)) for i in range(2)])
    Path("a").write_bytes(Path("a").read_bytes()[:-40])
    write_nnet(network(), "0.raw")
    for words in (
        ("nnet3-train", "--use-gpu=no", "0.raw", "ark:a", "out"),
        ("nnet3-copy-egs", "ark:a", "ark:out"),
        ("nnet3-shuffle-egs", "ark:a", "ark:out"),
        ("nnet3-merge-egs", "--minibatch-size=1", "ark:a", "ark:out"),
        ("nnet3-subset-egs", "ark:a", "ark:out"),
    ):
        line = fails(run, *words)
        assert "e1" in line, words
        assert not Path("out").exists(), words


def test_examples_that_do_not_fit_the_model(run):
    write_nnet(network(), "0.raw")
    write_table("ark:a", EXAMPLE, [("good", minibatch()), ("bad", example(dim=4))])
    line = fails(run, "nnet3-train", "--use-gpu=no", "0.raw", "ark:a", "out")
    assert "ark:a: example 'bad'" in line
    assert "dimension 4: the network expects 3" in line
    assert not Path("out").exists()


def test_too_little_context(run):
    write_nnet(network(), "0.raw")
    write_table("ark:a", EXAMPLE, [("short", example(context=0))])
    line = fails(run, "nnet3-train", "--use-gpu=no", "0.raw", "ark:a", "out")
    assert "example 'short'" in line
    assert "output" in line


def test_features_with_nan(run):
    write_data()
    items = list(SequentialTableReader("ark:feats.ark", GENERAL_MATRIX))
    items[2][1][4, 1] = np.nan
    write_table("ark:feats.ark", GENERAL_MATRIX, items)
    words = "nnet3-get-egs", "--num-pdfs=5", "ark:feats.ark", "ark:post.ark", "ark:out"
    error, *_ = [line for line in run(*words).splitlines() if line.startswith("ERROR")]
    assert "features of utterance 'u2': nan in row 4, column 1" in error
    assert error.endswith("(skipped)")
    made = {key.rpartition("-")[0] for key in keys("out")}
    assert "u2" not in made
    assert len(made) == len(items) - 1


@pytest.mark.parametrize("io_name", ["input", "output"])
def test_training_goes_on_without_examples_that_are_not_finite(run, io_name):
    write_nnet(network(), "0.raw")
    good, bad = minibatch(seed=1), minibatch(seed=2)
    (io,) = [io for io in bad.io if io.name == io_name]
    features = to_dense(io.features).copy()
    features[3, 1] = np.inf
    io = replace(io, features=features)
    bad = NnetExample([io if other.name == io_name else other for other in bad.io])
    write_table("ark:good", EXAMPLE, [("a", good), ("c", good)])
    write_table("ark:bad", EXAMPLE, [("a", good), ("b", bad), ("c", good)])
    for name in ("good", "bad"):
        log = run("nnet3-train", "--use-gpu=no", "0.raw", f"ark:{name}", f"{name}.raw")
    errors = [line for line in log.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 1
    assert f"ark:bad: example 'b': '{io_name}': inf in row 3, column 1" in errors[0]
    assert Path("bad.raw").read_bytes() == Path("good.raw").read_bytes()
    write_table("ark:bad", EXAMPLE, [("b", bad)])
    Path("bad.raw").unlink()
    run("nnet3-train", "--use-gpu=no", "0.raw", "ark:bad", "bad.raw", status=1)
    assert not Path("bad.raw").exists()


def test_missing_posteriors_and_wrong_lengths_are_counted(run):
    write_data()
    posts = list(SequentialTableReader("ark:post.ark", POSTERIOR))
    short = Posterior.from_counts([1] * 9, [0] * 9, [1] * 9)
    write_table("ark:post.ark", POSTERIOR, [posts[0], ("u1", short), posts[3]])
    log = get_egs(run)
    assert "No pdf-level posterior for key u2" in log
    assert "expected length for utterance u1: expected length = 18, got 9" in log
    assert "2 utterances had errors" in log
    assert {key.split("-")[0] for key in keys("a.egs")} == {"u0", "u3"}


def test_gpu_is_asked_for_in_vain(run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    write_nnet(network(), "0.raw")
    assert "--use-gpu=yes" in fails(run, "nnet3-train", "--use-gpu=yes", "0.raw", "ark:a", "out")


def test_text_models(run):
    write_table("ark:c.egs", EXAMPLE, [("m", minibatch())])
    write_nnet(network(), "0.txt", binary=False)
    run("nnet3-train", "--use-gpu=no", "--binary=false", "0.txt", "ark:c.egs", "1.txt")
    assert Path("1.txt").read_text().startswith("<Nnet3>")
