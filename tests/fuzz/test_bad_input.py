"""What users get wrong: one ERROR line that says where and what, a status, and no output."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.holders import MATRIX
from nnet3tools.io.table import TableWriter
from support.fuzz_corpus import CONFIG, in_corpus, run

NO_GPU = "--use-gpu=no"
CIRCLE = """input-node name=input dim=2
component name=x type=NoOpComponent dim=2
component-node name=x component=x input=Sum(input, Offset(y, -1))
component-node name=y component=x input=Offset(x, 1)
output-node name=output input=y
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with in_corpus(tmp_path_factory.mktemp("corpus")) as folder:
        Path("empty").touch()
        Path("circle.config").write_text(CIRCLE)
        assert run("nnet3-init", "circle.config", "circle.raw").status == 0
        good = np.ones((12, 3), np.float32)
        for name, value in (("nan", np.nan), ("inf", np.inf)):
            bad = good.copy()
            bad[4, 1] = value
            _features(name, bad)
        _features("wide", np.ones((12, 4), np.float32))
        Path("bad.scp").write_text("u0 feats.ark:3\nu1 nowhere:5\n")
        Path("six").write_text(" [ 1 1 1 1 1 1 ]\n")
    return folder


def _features(name: str, matrix: np.ndarray) -> None:
    with TableWriter(f"ark:{name}.ark", MATRIX) as writer:
        writer.write("u0", matrix)


def fails(corpus: Path, monkeypatch: pytest.MonkeyPatch, command: str, *words: str) -> None:
    monkeypatch.chdir(corpus)
    outcome = run(*command.split())
    assert outcome.crash is None
    assert outcome.status not in (0, None), outcome.log
    assert len(outcome.errors) + len(outcome.skipped) >= 1, outcome.log
    assert len(outcome.errors) <= 1, outcome.log
    assert "Traceback" not in outcome.log
    for word in words:
        assert word in "".join([*outcome.skipped, *outcome.errors])
    left = [path.name for path in corpus.iterdir() if path.name.startswith(("out", ".out"))]
    assert not left


CONFIGS = (
    ("TdnnComponent", "TdnComponent", ":6:", "TdnComponent", "TdnnComponent"),
    ("self-repair-scale=1e-5", "self-repair-scael=1e-5", ":4:", "self-repair-scael"),
    ("input-dim=8", "input-dim=7", ":13:", "'b'", "8", "7"),
    ("input=bn\n", "input=bm\n", ":12:", "bm"),
    ("input=Sum(relu, Scale(0.5, a))", "input=Sum(relu, bn)", ":11:", "cycle", "bn"),
    ("name=ivector dim=2", "name=ivector dim=-2", ":2:", "dim=-2"),
    ("Offset(bn, -2)", "Offset(bn, x)", ":13:", "'x'"),
    ("Offset(bn, -2)", "Round(bn, 0)", ":13:", "positive"),
    ("Offset(bn, -2)))", "Offset(bn, -2))", ":13:", "')'"),
    ("component name=relu", "component name=a", ":4:", "twice"),
    ("objective=linear", "objective=xent", ":15:", "xent"),
    ("output-dim=5", "output-dim=5 param-stddev=nan", ":7:", "param-stddev"),
    ("output-dim=5", "output-dim=5 learning-rate=-1", ":7:", "learning-rate"),
    ("output-dim=5", "output-dim=5 rank-in=0", ":7:", "rank"),
    ("output-node", "dim-range-node name=r input-node=a dim-offset=3 dim=3\noutput-node", ":15:"),
    ("input-dim=8 output-dim=5", "input-dim=2000000000 output-dim=2000000000", "out of memory"),
    (CONFIG, "", "bad.config", "no input-node"),
)


@pytest.mark.parametrize("case", CONFIGS)
def test_configs(corpus: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, ...]) -> None:
    old, new, *words = case
    assert old in CONFIG
    (corpus / "bad.config").write_text(CONFIG.replace(old, new))
    words = [f"bad.config{word}" if word.startswith(":") else word for word in words]
    fails(corpus, monkeypatch, "nnet3-init bad.config out", *words)


COMPUTE = f"nnet3-compute {NO_GPU}"
COMMANDS = (
    ("nnet3-copy nowhere out", "nowhere"),
    ("nnet3-copy final.raw nowhere/out", "nowhere/out"),
    ("nnet3-copy empty out", "empty", "<Nnet3>"),
    ("nnet3-copy --foo=1 final.raw out", "--foo"),
    ("nnet3-copy --scale=nan final.raw out", "--scale"),
    ("nnet3-copy --edits=foo final.raw out", "--edits:1", "foo"),
    ("nnet3-copy ark:final.raw out", "ark:final.raw"),
    ("nnet3-init --srand=x net.config out", "--srand", "'x'"),
    ("nnet3-init empty out", "empty", "input-node"),
    ("nnet3-compile final.raw egs out", "egs", "expected text, found binary bytes"),
    ("nnet3-compile mono.raw request out", "request", "ivector"),
    ("nnet3-compile circle.raw zoo-request out", "zoo-request", "output", "circle"),
    ("nnet3-info circle.raw", "circle.raw", "context"),
    (f"{COMPUTE} circle.raw ark:feats.ark ark:out", "circle.raw"),
    (f"{COMPUTE} mono.raw ark:nowhere ark:out", "nowhere"),
    (f"{COMPUTE} mono.raw ark:empty ark:out", "empty", "no utterances"),
    (f"{COMPUTE} mono.raw ark:empty ark,scp:out,out.scp", "empty", "no utterances"),
    (f"{COMPUTE} mono.raw scp:bad.scp ark,scp:out,out.scp", "nowhere"),
    (f"{COMPUTE} mono.raw feats.ark ark:out", "feats.ark"),
    (f"{COMPUTE} mono.raw ark:feats.ark out", "'out'"),
    (f"{COMPUTE} mono.raw ark:wide.ark ark:out", "u0", "3", "4"),
    (f"{COMPUTE} mono.raw ark:nan.ark ark:out", "u0", "nan in row 4, column 1"),
    (f"{COMPUTE} mono.raw ark:inf.ark ark:out", "u0", "inf in row 4, column 1"),
    (f"{COMPUTE} final.raw ark:feats.ark ark:out", "u0", "ivector"),
    (f"{COMPUTE} --frames-per-chunk=-3 mono.raw ark:feats.ark ark:out", "--frames-per-chunk"),
    (f"{COMPUTE} --use-priors=true mono.raw ark:feats.ark ark:out", "mono.raw"),
    (f"{COMPUTE} --computation=program mono.raw ark:inputs.ark ark:out", "program"),
    ("nnet3-compute --use-gpu=maybe mono.raw ark:feats.ark ark:out", "--use-gpu=maybe"),
    (f"nnet3-train {NO_GPU} final.raw ark:empty out", "empty"),
    (f"nnet3-train {NO_GPU} mono.raw ark:merged out", "merged", "ivector"),
    (f"nnet3-train {NO_GPU} --momentum=-1 final.raw ark:merged out", "--momentum"),
    (f"nnet3-train {NO_GPU} --max-param-change=nan final.raw ark:merged out", "--max-param"),
    (f"nnet3-train {NO_GPU} final.raw ark:nowhere no/out", "no/out"),
    ("nnet3-combine final.raw ark:nowhere no/out", "no/out"),
    ("nnet3-average final.raw mono.raw out", "mono.raw", "'a'"),
    ("nnet3-average final.raw TanhComponent.raw out", "TanhComponent.raw"),
    ("nnet3-average --weights=0.5 final.raw trained.raw out", "--weights"),
    ("nnet3-copy-egs ark:empty ark:out", "empty"),
    ("nnet3-copy-egs --keep-proportion=nan ark:egs ark:out", "--keep-proportion"),
    ("nnet3-merge-egs --minibatch-size=0 ark:egs ark:out", "--minibatch-size"),
    ("nnet3-shuffle-egs ark:empty ark:out", "empty"),
    ("nnet3-subset-egs --n=-1 ark:egs ark:out", "--n"),
    ("nnet3-merge-egs --minibatch-size=x ark:egs ark:out", "--minibatch-size"),
    ("nnet3-copy-egs --frame=middle ark:egs ark:out", "--frame"),
    ("nnet3-shuffle-egs --buffer-size=-1 ark:egs ark:out", "--buffer-size"),
    ("nnet3-get-egs --num-pdfs=5 --num-frames=x ark:feats.ark ark:post.ark ark:out", "--num-fr"),
    ("nnet3-get-egs ark:feats.ark ark:post.ark ark:out", "--num-pdfs"),
    ("nnet3-get-egs --num-pdfs=5 ark:nan.ark ark:post.ark ark:out", "u0", "nan in row 4"),
    ("nnet3-get-egs --num-pdfs=2 ark:feats.ark ark:post.ark ark:out", "u0", "--num-pdfs"),
    ("nnet3-am-copy mono.raw out", "mono.raw", "<TransitionModel>"),
    ("nnet3-am-adjust-priors final.mdl empty out", "empty"),
    ("nnet3-am-adjust-priors final.mdl six out", "6", "4"),
    ("nnet3-combine final.raw mono.raw ark:merged out", "mono.raw", "do not match"),
    ("nnet-get-feature-transform --dim=3 out lda.bin", "lda.bin", "2", "3"),
)


@pytest.mark.parametrize("case", COMMANDS, ids=[case[0] for case in COMMANDS])
def test_commands(corpus: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, ...]) -> None:
    fails(corpus, monkeypatch, *case)


def test_failing_pipes(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)
    for words in (
        ("mono.raw", "ark:cat feats.ark; false |", "ark:out"),
        ("mono.raw", "ark:feats.ark", "ark:| false"),
        ("false |", "ark:feats.ark", "ark:out"),
    ):
        outcome = run("nnet3-compute", NO_GPU, *words)
        assert outcome.status != 0
        assert len(outcome.errors) == 1
        assert "false" in outcome.errors[0]
        assert not Path("out").exists()
