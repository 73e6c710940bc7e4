"""nnet3-compute, nnet3-compute-batch and the x-vector programs as commands."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.holders import TOKEN, VECTOR
from nnet3tools.nnet.model_file import read_nnet, write_nnet
from nnet3tools.training.example import EXAMPLE
from support.configs import in_a_row
from support.programs import read_table, run, write_table

CONFIG = """
input-node name=input dim=3
component name=a type=AffineComponent input-dim=9 output-dim=4
component name=b type=AffineComponent input-dim=4 output-dim=2
component name=bn type=BatchNormComponent dim=4
component name=dropout type=DropoutComponent dim=4 dropout-proportion=0.5
component name=softmax type=LogSoftmaxComponent dim=2
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=bn component=bn input=a
component-node name=dropout component=dropout input=bn
component-node name=b component=b input=dropout
component-node name=softmax component=softmax input=b
output-node name=output input=softmax
"""

IVECTOR = """
input-node name=input dim=3
input-node name=ivector dim=2
component name=a type=NoOpComponent dim=5
component-node name=a component=a input=Append(input, ReplaceIndex(ivector, t, 0))
output-node name=output input=a
"""

TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State>
</TopologyEntry> </Topology>
"""
TREE = "ContextDependency 1 0 ToPdf TE 0 2 ( NULL TE -1 1 ( CE 0 ) ) EndContextDependency "

FEATURES = {
    key: np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
    for key, n in (("u1", 7), ("u2", 12))
}


def compute(*words: object, program: str = "nnet3-compute", out: str = "ark:out.ark") -> int:
    *options, model, features = words
    return run(program, "--use-gpu=no", *options, model, features, out)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with networks and features."""
    monkeypatch.chdir(tmp_path)
    Path("net.config").write_text(CONFIG)
    Path("ivector.config").write_text(IVECTOR)
    for name in ("net", "ivector"):
        assert run("nnet3-init", f"{name}.config", f"{name}.raw") == 0
    nnet = read_nnet("net.raw")
    batchnorm = nnet.component(nnet.component_index("bn"))
    batchnorm.count = 2.0
    batchnorm.stats_sum[...] = np.random.default_rng(8).normal(size=4)
    batchnorm.stats_sumsq[...] = 2 + batchnorm.stats_sum**2
    write_nnet(nnet, "net.raw")
    write_table("ark:feats.ark", FEATURES)
    return tmp_path


def one_error(capsys) -> str:
    """The only ERROR line; fails if there is output."""
    lines = [line for line in capsys.readouterr().err.splitlines() if "ERROR" in line]
    assert len(lines) == 1
    assert not Path("out.ark").exists()
    return lines[0]


def test_apply_exp_gives_probabilities_and_scale_is_applied_before_it(capsys):
    assert compute("net.raw", "ark:feats.ark") == 0
    assert "Done 2 utterances, failed for 0" in (err := capsys.readouterr().err)
    assert "real-time factor assuming 100 frames/sec is" in err
    logs = read_table("ark:out.ark")
    assert {key: value.shape for key, value in logs.items()} == {"u1": (7, 2), "u2": (12, 2)}
    assert compute("--apply-exp", "net.raw", "ark:feats.ark") == 0
    for key, output in read_table("ark:out.ark").items():
        np.testing.assert_allclose(output.sum(axis=1), 1, rtol=1e-5)
        np.testing.assert_allclose(output, np.exp(logs[key]), rtol=1e-5)
    assert compute("--apply-exp", "--acoustic-scale=0.1", "net.raw", "ark:feats.ark") == 0
    np.testing.assert_allclose(read_table("ark:out.ark")["u1"], np.exp(0.1 * logs["u1"]), rtol=1e-5)


def test_priors_of_an_acoustic_model_are_used_only_if_asked_for():
    Path("tree").write_text(TREE)
    Path("topo").write_text(TOPOLOGY)
    Path("one.config").write_text(CONFIG.replace("dim=2", "dim=1"))
    Path("post.vec").write_text("[ 0.25 ]\n")
    assert run("nnet3-init", "one.config", "one.raw") == 0
    assert run("nnet3-am-init", "tree", "topo", "one.raw", "0.mdl") == 0
    assert run("nnet3-am-adjust-priors", "0.mdl", "post.vec", "1.mdl") == 0
    assert compute("--use-priors", "1.mdl", "ark:feats.ark") == 0
    # the only class has probability 1 and prior 1
    for output in read_table("ark:out.ark").values():
        np.testing.assert_allclose(output, 0, atol=1e-6)
    assert compute("--use-priors=true", "net.raw", "ark:feats.ark") == 255


def test_batch_norm_and_dropout_are_in_test_mode_so_that_runs_agree():
    assert compute("net.raw", "ark:feats.ark") == 0
    first = read_table("ark:out.ark")
    for program in ("nnet3-compute", "nnet3-compute-batch"):
        assert compute("--frames-per-chunk=4", "net.raw", "ark:feats.ark", program=program) == 0
        second = read_table("ark:out.ark")
        assert list(second) == ["u1", "u2"]
        for key, output in second.items():
            np.testing.assert_allclose(output, first[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", ["nnet3-compute", "nnet3-compute-batch"])
def test_ivectors_by_utterance_by_speaker_and_online(program):
    rng = np.random.default_rng(9)
    vectors = {key: rng.normal(size=2).astype(np.float32) for key in ("s1", "s2")}
    write_table("ark:speakers.ark", vectors, VECTOR)
    write_table("ark:utt2spk", {"u1": "s2", "u2": "s1"}, TOKEN)
    args = ("--ivectors=ark:speakers.ark", "--utt2spk=ark:utt2spk")
    assert compute(*args, "ivector.raw", "ark:feats.ark", program=program) == 0
    found = read_table("ark:out.ark")
    np.testing.assert_allclose(found["u1"], np.hstack([FEATURES["u1"], [vectors["s2"]] * 7]))
    np.testing.assert_allclose(found["u2"], np.hstack([FEATURES["u2"], [vectors["s1"]] * 12]))
    online = {"u1": np.ones((2, 2), np.float32), "u2": np.arange(6, dtype=np.float32).reshape(3, 2)}
    write_table("ark:online.ark", online)
    args = ("--online-ivectors=ark:online.ark", "--online-ivector-period=4", "--frames-per-chunk=4")
    assert compute(*args, "ivector.raw", "ark:feats.ark", program=program) == 0
    np.testing.assert_allclose(
        read_table("ark:out.ark")["u2"][:, 3:], np.repeat(online["u2"], 4, axis=0)
    )


@pytest.mark.parametrize("program", ["nnet3-compute", "nnet3-compute-batch"])
def test_utterances_that_lack_something_are_warned_about_and_left_out(program, capsys):
    write_table("ark:feats.ark", {"u0": np.empty((0, 3), np.float32), **FEATURES})
    write_table("ark:ivectors.ark", {"u2": np.ones(2, np.float32)}, VECTOR)
    args = ("--ivectors=ark:ivectors.ark", "ivector.raw", "ark:feats.ark")
    assert compute(*args, program=program) == 0
    assert list(read_table("ark:out.ark")) == ["u2"]
    err = capsys.readouterr().err
    assert "WARNING" in err
    assert "Zero-length utterance: u0" in err
    assert "No iVector available for utterance u1" in err
    assert "Done 1 utterances, failed for 2" in err


@pytest.mark.parametrize("program", ["nnet3-compute", "nnet3-compute-batch"])
def test_nothing_computed_is_a_failure_that_leaves_nothing(program, capsys):
    write_table("ark:ivectors.ark", {"other": np.ones(2, np.float32)}, VECTOR)
    args = ("--ivectors=ark:ivectors.ark", "ivector.raw", "ark:feats.ark")
    assert compute(*args, program=program) == 1
    assert "Done 0 utterances, failed for 2" in capsys.readouterr().err
    assert not Path("out.ark").exists()


def bad_features(name):
    features = {key: value.copy() for key, value in FEATURES.items()}
    if name == "nan":
        features["u2"][5, 1] = np.nan
    if name == "wide":
        features["u2"] = np.ones((4, 4), np.float32)
    if name == "empty":
        features = {}
    write_table(f"ark:{name}.ark", features)
    return f"ark:{name}.ark"


@pytest.mark.parametrize("program", ["nnet3-compute", "nnet3-compute-batch"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wide", "utterance u2: the network expects 'input' features with dimension 3, found 4"),
        ("empty", "ark:empty.ark: no utterances"),
    ],
)
def test_bad_features_end_in_one_line_and_leave_nothing(program, name, message, capsys):
    status = 1 if name == "empty" else 255
    assert compute("net.raw", bad_features(name), program=program) == status
    assert message in one_error(capsys)


@pytest.mark.parametrize("program", ["nnet3-compute", "nnet3-compute-batch"])
def test_an_utterance_with_nan_is_skipped_and_the_others_are_written(program, capsys):
    assert compute("net.raw", bad_features("nan"), program=program) == 0
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "ERROR" in line]
    assert "utterance u2: features: nan in row 5, column 1: expected finite numbers" in error
    assert error.endswith("(skipped)")
    assert list(read_table("ark:out.ark")) == ["u1"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("ivector.raw", "ark:feats.ark"), "dimension 2, but none are given"),
        (("missing.raw", "ark:feats.ark"), "missing.raw"),
        (("net.raw", "ark:missing.ark"), "missing.ark"),
        (("--online-ivectors=ark:x", "ivector.raw", "ark:feats.ark"), "--online-ivector-period"),
        (("--ivectors=ark:x", "--online-ivectors=ark:y", "n", "f"), "cannot both be given"),
        (("--frames-per-chunk=0", "net.raw", "ark:feats.ark"), "must be > 0"),
        (("--output-derivs=ark:x", "net.raw", "ark:feats.ark"), "needs --computation"),
        (("net.config", "ark:feats.ark"), "net.config"),
    ],
)
def test_wrong_command_lines_end_in_one_line(args, message, capsys):
    assert compute(*args) == 255
    assert message in one_error(capsys)


def test_a_network_that_is_not_simple_is_refused(capsys):
    Path("odd.config").write_text(CONFIG.replace("name=output ", "name=other "))
    assert run("nnet3-init", "odd.config", "odd.raw") == 0
    capsys.readouterr()
    assert compute("odd.raw", "ark:feats.ark") == 255
    assert "odd.raw: the network must have an output node 'output'" in one_error(capsys)


def test_programs_are_read_from_the_cache_that_was_written(capsys):
    args = ("--verbose=1", "ivector.raw", "ark:feats.ark")
    write_table("ark:ivectors.ark", {k: np.ones(2, np.float32) for k in FEATURES}, VECTOR)
    ivectors = "--ivectors=ark:ivectors.ark"
    assert compute("--write-cache=cache", ivectors, *args) == 0
    first = read_table("ark:out.ark")
    assert compute("--read-cache=cache", ivectors, *args) == 0
    for key, output in read_table("ark:out.ark").items():
        np.testing.assert_array_equal(output, first[key])
    assert "WARNING" not in capsys.readouterr().err


# -- x-vectors

MEAN = in_a_row("""input dim=3
stats StatisticsExtractionComponent input-dim=3 include-variance=false
pool StatisticsPoolingComponent input-dim=4 left-context=100 right-context=100 \
num-log-count-features=0 output-stddevs=false""")


def xvector(*words: object) -> int:
    Path("mean.config").write_text(MEAN)
    assert run("nnet3-init", "mean.config", "mean.raw") == 0
    return run(
        "nnet3-xvector-compute", "--use-gpu=no", *words, "mean.raw", "ark:feats.ark", "ark:out.ark"
    )


def test_an_xvector_for_each_utterance():
    assert xvector("--min-chunk-size=1", "--cached-compiler-out=cache") == 0
    for key, vector in read_table("ark:out.ark", VECTOR).items():
        np.testing.assert_allclose(vector, FEATURES[key].mean(axis=0), rtol=1e-4, atol=1e-5)
    assert xvector("--min-chunk-size=1", "--cached-compiler-in=cache") == 0
    assert set(read_table("ark:out.ark", VECTOR)) == {"u1", "u2"}


def test_utterances_too_short_for_an_xvector_are_left_out(capsys):
    assert xvector("--pad-input=false", "--min-chunk-size=8") == 0
    assert list(read_table("ark:out.ark", VECTOR)) == ["u2"]
    assert "Minimum chunk size of 8 is greater than the number" in capsys.readouterr().err
    Path("out.ark").unlink()
    assert xvector("--pad-input=false", "--min-chunk-size=80") == 1
    assert not Path("out.ark").exists()


def get_egs(ranges: str, *options: str) -> int:
    Path("ranges").write_text(ranges)
    outputs = ("ark:0.egs", "ark:1.egs")
    return run(
        "nnet3-xvector-get-egs", "--num-pdfs=5", *options, "ranges", "ark:feats.ark", *outputs
    )


def test_examples_of_speakers_go_to_the_archive_of_their_range(capsys):
    ranges = "u1 1 11 2 4 3\nu2 0 10 1 5 4\nu2 1 11 9 6 0\nu1 0 10 0 50 3\n"
    assert get_egs(ranges, "--compress=false") == 0
    assert "utterance has only 7 frames" in capsys.readouterr().err
    first, second = read_table("ark:0.egs", EXAMPLE), read_table("ark:1.egs", EXAMPLE)
    assert (list(first), list(second)) == (["u2-1-5-4"], ["u1-2-4-3", "u2-9-6-0"])
    x, label = second["u2-9-6-0"].io
    np.testing.assert_array_equal(x.features, FEATURES["u2"][6:12])  # shifted back
    np.testing.assert_array_equal(x.indexes[:, 1], np.arange(6))
    np.testing.assert_array_equal(to_dense(label.features), [[1, 0, 0, 0, 0]])
    assert get_egs(ranges) == 0
    x = read_table("ark:1.egs", EXAMPLE)["u2-9-6-0"].io[0]
    assert not isinstance(x.features, np.ndarray)
    np.testing.assert_allclose(to_dense(x.features), FEATURES["u2"][6:12], atol=0.05)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ("u1 0 0 0 4\n", "ranges: line 1: expected 6 fields, found 5"),
        ("u1 0 0 0 4 1\nu1 0 0 zero 4 1\n", "ranges: line 2: expected integers"),
        ("u1 2 0 0 4 1\n", "archive 2, but there are 2 outputs"),
        ("u1 0 0 0 4 5\n", "label 5 is not below --num-pdfs=5"),
        ("u1 0 0 -1 4 1\n", "expected integers from 0"),
    ],
)
def test_broken_ranges_name_their_line(ranges, message, capsys):
    assert get_egs(ranges) == 255
    assert message in capsys.readouterr().err
    assert not Path("0.egs").exists()


def test_no_example_at_all_is_a_failure_that_leaves_nothing():
    assert get_egs("other 0 0 0 4 1\n") == 1
    assert not Path("0.egs").exists()


OVERFLOWING = in_a_row("""input dim=3
first NoOpComponent dim=3
large FixedScaleComponent dim=3 scale=1e30
larger FixedScaleComponent dim=3 scale=1e30
last NoOpComponent dim=3
output objective=quadratic""")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("nnet3-compute", ["ark:feats.ark", "ark:out.ark"]),
        ("nnet3-compute", ["--looped=true", "ark:feats.ark", "ark:out.ark"]),
        ("nnet3-compute-batch", ["ark:feats.ark", "ark:out.ark"]),
        ("nnet3-xvector-compute", ["ark:feats.ark", "ark:out.ark"]),
        ("nnet3-xvector-compute-batched", ["--chunk-size=10", "ark:feats.ark", "ark:out.ark"]),
        ("nnet3-compute-prob", ["ark:egs.ark"]),
    ],
)
def test_the_log_says_once_at_which_component_numbers_overflowed(program, words, capfd):
    Path("over.config").write_text(OVERFLOWING)
    assert run("nnet3-init", "over.config", "over.raw") == 0
    egs = ["--num-targets=3", "--num-frames=4", "ark:feats.ark", "ark:feats.ark", "ark:egs.ark"]
    assert run("nnet3-get-egs-dense-targets", *egs) == 0
    capfd.readouterr()
    options = [word for word in words if word.startswith("--")]
    assert run(program, "--use-gpu=no", *options, "over.raw", *words[len(options) :]) in (0, 1)
    log = capfd.readouterr().err
    warnings = [line for line in log.splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert "'output' overflows or is not finite; it began at component 'larger'" in warnings[0]
    assert "RuntimeWarning" not in log


def test_a_wrong_wspecifier_is_not_blamed_on_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert compute("net.raw", "ark:in.ark", out="out.ark") == 255
    message = capsys.readouterr().err.splitlines()[-1]
    assert "invalid wspecifier 'out.ark': expected a form such as ark:file" in message
    assert "net.raw" not in message
