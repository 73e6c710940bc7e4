"""Programs run inside a worker give the same results as a shell."""

import os
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.holders import MATRIX
from nnet3tools.recipe import inside
from nnet3tools.recipe.inside import Shell, parse_pipeline
from nnet3tools.recipe.jobs import Job
from support.shell import Shell as Programs

BIN = Path(__file__).parents[2] / "bin"


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("copy-feats ark:a ark:-", 1),
        ("copy-feats ark:a ark:- | copy-feats ark:- ark:-", 2),
        ("nnet3-copy --edits='set-dropout-proportion name=* proportion=0.1' - -", 1),
        ("nnet3-copy --edits='a;b|c' - -", 1),
    ],
)
def test_what_is_ours_is_taken_apart(text: str, programs: int) -> None:
    found = parse_pipeline(text)
    assert found is not None
    assert len(found) == programs


@pytest.mark.parametrize(
    "text",
    [
        "gunzip -c a",
        "copy-feats ark:a ark:- | gzip",
        "copy-feats ark:$a ark:-",
        "copy-feats ark:*.ark ark:-",
        "copy-feats ark:a ark:- 2>log",
        "copy-feats ark:a ark:- && copy-feats ark:b ark:-",
        "copy-feats 'ark:a ark:-",
        "copy-feats `echo ark:a` ark:-",
        "",
    ],
)
def test_what_is_the_shells_is_left_to_it(text: str) -> None:
    assert parse_pipeline(text) is None


@pytest.fixture
def features(shell: Programs, monkeypatch: pytest.MonkeyPatch) -> Programs:
    rng = np.random.default_rng(0)
    shell.write("a", MATRIX, {k: rng.normal(size=(9, 3)).astype(np.float32) for k in "xyz"})
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    return shell


PIPELINES = [
    (("copy-feats", "--compress=true", "ark:a", "ark:-"), ("copy-feats", "ark:-", "ark:out")),
    (("matrix-sum-rows", "ark:a", "ark:-"), ("vector-sum", "ark:-", "out")),
    (("copy-feats", "ark:copy-feats ark:a ark,t:- |", "ark:out"),),
    (("copy-feats", "ark:cat a |", "ark:out"),),
    (("copy-feats", "ark:a", "ark:-"), ("cat",), ("copy-feats", "ark:-", "ark:out")),
    (("matrix-sum", "--binary=false", "ark:a", "| copy-matrix - out"),),
]


@pytest.mark.parametrize(
    ("pipeline", "largest"),
    [*((pipeline, inside.LARGEST_HELD) for pipeline in PIPELINES), (PIPELINES[0], 0)],
)
def test_pipelines_write_what_they_write_in_a_shell(
    features: Programs, monkeypatch: pytest.MonkeyPatch, pipeline: inside.Pipeline, largest: int
) -> None:
    monkeypatch.setattr(inside, "LARGEST_HELD", largest)
    assert os.system(Job("", (pipeline,)).shell) == 0
    wanted = Path("out").read_bytes()
    Path("out").unlink()
    for _ in range(3):  # from the second time on results of pipes are kept
        assert Shell().run(pipeline) == 0
        assert Path("out").read_bytes() == wanted


def test_a_program_that_fails_ends_its_pipeline(features: Programs) -> None:
    failing = ("copy-feats", "ark:none", "ark:-")
    assert Shell().run((failing, ("copy-feats", "ark:-", "ark:out"))) == 255
    assert Shell().run((("copy-feats", "ark:copy-feats ark:none ark:- |", "ark:out"),)) == 255
    assert not Path("out").exists()


def test_a_kept_result_is_made_again_when_its_file_changes(features: Programs) -> None:
    shell = Shell()
    pipeline = (("copy-feats", "ark:copy-feats ark:a ark:- |", "ark,t:out"),)
    for value in (1.0, 1.0, 1.0, 2.0):
        features.write("a", MATRIX, {"x": np.full((1, 1), value, np.float32)})
        assert shell.run(pipeline) == 0
        assert f"{value:g}" in Path("out").read_text()


def test_scripts_count_with_what_they_name(features: Programs) -> None:
    features("copy-feats", "ark:a", "ark,scp:b.ark,b.scp")
    size = os.path.getsize("b.ark")
    assert inside._size_of_script("b.scp") == size
    Path("c.scp").write_text("x gunzip -c x.gz |\n")
    assert inside._size_of_script("c.scp") == float("inf")
