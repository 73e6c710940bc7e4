"""A data directory, targets and a network so small that a whole training takes seconds."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from nnet3tools.io.holders import INT32_VECTOR, MATRIX
from support.configs import in_a_row
from support.programs import write_table

CONFIG = in_a_row("""input dim=4
a NaturalGradientAffineComponent input-dim=12 output-dim=6 \
input=Append(Offset(input, -1), input, Offset(input, 1))
r RectifiedLinearComponent dim=6
b BatchNormComponent dim=6
o NaturalGradientAffineComponent input-dim=6 output-dim=3
s LogSoftmaxComponent dim=3""")
OPTIONS = (
    "--use-gpu=no",
    "--trainer.num-epochs=1",
    "--egs.frames-per-eg=2",
    "--trainer.samples-per-iter=200",
    "--trainer.optimization.minibatch-size=32",
    "--trainer.optimization.num-jobs-initial=1",
    "--trainer.optimization.num-jobs-final=1",
    "--trainer.optimization.initial-effective-lrate=0.01",
    "--trainer.optimization.final-effective-lrate=0.001",
    "--egs.opts=--num-utts-subset 4 --nj 2",
    "--targets-scp=targets.scp",
    "--use-dense-targets=false",
    "--feat-dir=data",
)


def make_data(folder: Path, num_utts: int = 18, num_frames: int = 30) -> None:
    """data/ and targets.scp under the working directory `folder`; means are the classes."""
    rng = np.random.default_rng(1)
    (folder / "data").mkdir()
    names = [f"s{i % 3}-u{i:02}" for i in range(num_utts)]
    names.sort()
    targets = {name: rng.integers(0, 3, num_frames).astype(np.int32) for name in names}
    features = {
        name: (rng.normal(size=(num_frames, 4)) + targets[name][:, None]).astype(np.float32)
        for name in names
    }
    speakers = sorted({name.split("-")[0] for name in names})
    stats = {name: _stats(features, name) for name in speakers}
    write_table("ark,scp:data/feats.ark,data/feats.scp", features, MATRIX)
    write_table("ark,scp:data/cmvn.ark,data/cmvn.scp", stats, MATRIX)
    write_table("ark,scp:targets.ark,targets.scp", targets, INT32_VECTOR)
    lines = [f"{name} {name.split('-')[0]}\n" for name in names]
    (folder / "data" / "utt2spk").write_text("".join(lines))


def _stats(features: dict[str, np.ndarray], speaker: str) -> np.ndarray:
    rows = np.concatenate([m for name, m in features.items() if name.startswith(speaker)])
    stats = np.zeros((2, rows.shape[1] + 1), np.float32)
    stats[0] = [*rows.sum(axis=0), len(rows)]
    stats[1, :-1] = (rows**2).sum(axis=0)
    return stats


def make_dir(folder: Path, config: str = CONFIG) -> Path:
    """A directory of an experiment with its configs."""
    (folder / "configs").mkdir(parents=True)
    (folder / "configs" / "final.config").write_text(config)
    (folder / "configs" / "vars").write_text(
        "model_left_context=1\nmodel_right_context=1\nnum_targets=3\n"
    )
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """All files but logs, which have times in them, and reports of them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(bytes(folder.name, "utf8"), b"DIR")
        for path in files
        if "log" not in path.parts and "report" not in path.name
    }


def start(folder: str, *options: str) -> subprocess.Popen[bytes]:
    """The training program in the background, for `folder` in the working directory."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "nnet3tools.cli",
            "nnet3-train-raw-dnn",
            *OPTIONS,
            *options,
            f"--dir={folder}",
        ],
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
