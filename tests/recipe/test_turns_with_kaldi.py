"""Kaldi's scripts and ours continue each other's directories, and run.pl starts our jobs.

Needs a checkout of Kaldi (scripts only): NNET3TOOLS_KALDI=/where/kaldi.
"""

import os
import subprocess
from pathlib import Path

import pytest

from support.shell import Shell
from support.tiny_training import OPTIONS, contents, make_data, make_dir

PROGRAM = "nnet3-train-raw-dnn"
BIN = Path(__file__).parents[2] / "bin"
KALDI = os.environ.get("NNET3TOOLS_KALDI", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not KALDI, reason="NNET3TOOLS_KALDI names no checkout of Kaldi"),
]


@pytest.fixture
def kaldi(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A working directory with data, and Kaldi's scripts as recipes have them."""
    make_data(tmp_path)
    for name in ("steps", "utils"):
        (tmp_path / name).symlink_to(Path(KALDI).resolve() / "egs" / "wsj" / "s5" / name)
    names = [line.split()[0] for line in Path("data/utt2spk").read_text().splitlines()]
    speakers: dict[str, list[str]] = {}
    for name in names:
        speakers.setdefault(name.split("-")[0], []).append(name)
    lines = [f"{speaker} {' '.join(of)}\n" for speaker, of in speakers.items()]
    Path("data/spk2utt").write_text("".join(lines))
    # Kaldi's scripts count frames by durations.
    Path("data/utt2dur").write_text("".join(f"{name} 0.30\n" for name in names))
    Path("data/frame_shift").write_text("0.01\n")
    path = f"{BIN}:{tmp_path / 'utils'}:{BIN.parent / '.venv/bin'}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("LC_ALL", "C")
    Path("path.sh").write_text(f"export PATH={path}\n")
    return shell


def theirs(*options: str) -> None:
    words = [word for option in (*OPTIONS, *options) for word in option.split("=", 1)]
    done = subprocess.run(
        ["steps/nnet3/train_raw_dnn.py", "--cmd", "run.pl", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def models(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.raw")}


def test_kaldis_script_begins_ours_goes_on_theirs_ends(kaldi: Shell, tmp_path: Path) -> None:
    folder, whole = make_dir(tmp_path / "exp"), make_dir(tmp_path / "whole")
    kaldi(PROGRAM, *OPTIONS, "--dir=whole", "--cleanup=false")
    theirs("--dir=exp", "--cleanup=false", "--exit-stage=1")
    kaldi(PROGRAM, *OPTIONS, "--dir=exp", "--cleanup=false", "--exit-stage=3")
    assert not (folder / "4.raw").exists()
    theirs("--dir=exp", "--cleanup=false", "--stage=3")
    assert models(folder) == models(whole)
    kaldi(PROGRAM, *OPTIONS, "--dir=exp", "--cleanup=false")  # nothing is left to do
    assert models(folder) == models(whole)


def test_jobs_through_run_pl(kaldi: Shell, tmp_path: Path) -> None:
    folder, whole = make_dir(tmp_path / "exp"), make_dir(tmp_path / "whole")
    kaldi(PROGRAM, *OPTIONS, "--dir=whole", "--exit-stage=2")
    kaldi(PROGRAM, *OPTIONS, "--dir=exp", "--exit-stage=2", "--cmd=run.pl --mem 1G")
    assert models(folder) == models(whole)
    assert {name for name in contents(folder) if "egs/" in name} == {
        name for name in contents(whole) if "egs/" in name
    }
