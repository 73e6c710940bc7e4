"""On a full disk programs name the file in one line, keep older files, leave no partial ones.

The disk is a small tmpfs where mounting is permitted, else a limit on the size of files.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.holders import GENERAL_MATRIX, MATRIX
from support.programs import run, write_table

ROOM = 64 << 10
CONFIG = """input-node name=input dim=40
component name=a type=NaturalGradientAffineComponent input-dim=40 output-dim=500
component-node name=a component=a input=input
output-node name=output input=a objective=quadratic
"""


@pytest.fixture
def no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Make a folder `small` without room for the results; True if by this process's size limit."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("small")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", "small"]
    mounted = subprocess.run(mount, stderr=subprocess.DEVNULL).returncode == 0
    Path("net.config").write_text(CONFIG)
    assert run("nnet3-init", "net.config", "0.raw") == 0
    feats = {f"u{i}": np.full((20, 40), i + 0.1, np.float32) for i in range(10)}
    write_table("ark:feats", feats, MATRIX)
    targets = {key: np.ones((20, 500), np.float32) for key in feats}
    write_table("ark:targets", targets, GENERAL_MATRIX)
    egs = ("input=ark:feats", "output=ark:targets", "ark:egs")
    assert run("nnet3-get-egs-simple", *egs) == 0
    try:
        yield not mounted
    finally:
        if mounted:
            subprocess.run(["umount", "small"], check=True)


def program(*words: str, limited: bool) -> tuple[int, list[str]]:
    """Run a program; returns its exit status and ERROR lines."""

    def limit() -> None:
        if limited:
            resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))

    command = [sys.executable, "-m", "nnet3tools.cli", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, preexec_fn=limit)
    lines = done.stderr.decode().splitlines()
    assert not any("Traceback" in line for line in lines)
    return done.returncode, [line for line in lines if line.startswith("ERROR")]


COMMANDS = (
    ("nnet3-copy", "0.raw", "small/out"),
    ("nnet3-train", "--use-gpu=no", "0.raw", "ark:egs", "small/out"),
    ("nnet3-copy-egs", "ark:egs", "ark,scp:small/out,small/out.scp"),
    ("nnet3-copy", "--binary=false", "0.raw", "small/out"),
    ("nnet3-copy-egs", "ark:egs", "ark,t,f:small/out"),
    ("nnet3-compute", "--use-gpu=no", "0.raw", "ark:feats", "ark,scp:small/out,small/out.scp"),
)  # fmt: skip


def test_results_without_room(no_room: bool) -> None:
    before: dict[str, str] = {}
    for number, command in enumerate(COMMANDS):
        if number == len(COMMANDS) // 2:  # later commands find older files
            before = {"out": "old", "out.scp": "older"}
            for name, text in before.items():
                Path("small", name).write_text(text)
        status, errors = program(*command, limited=no_room)
        assert status == 255, command
        (error,) = errors
        assert "small/out" in error
        assert "No space left" in error or "File too large" in error
        left = {name: Path("small", name).read_text() for name in os.listdir("small")}
        assert left == before, command
