"""nnet3-compute in turns with onnxruntime, which computes the same network exported to ONNX."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
from processes import ROOT, Timing, environment_of, ours, timed
from rows import Row, Setting, least

NUM_FRAMES = 400
"""Of each utterance of feats.ark."""


def beside_onnxruntime(setting: Setting, name: str) -> Row:
    """A row for a network after three minibatches, by whole utterances, one thread.

    Our time includes the start, onnxruntime's neither the start nor the first utterance. SystemExit
    if the outputs differ by more than 0.001.
    """
    from onnx_networks import write_onnx

    folder, model = setting.folder, f"{name}.short.raw"
    egs = f"ark:nnet3-subset-egs --n=3 ark:{name}.egs ark:- |"
    timed(ours("nnet3-train", "--use-gpu=no", f"{name}.raw", egs, model), folder)
    context = write_onnx(folder / model, NUM_FRAMES, folder / f"{name}.onnx")
    _write_padded(folder, context)
    compute = ["nnet3-compute", "--use-gpu=no", f"--frames-per-chunk={NUM_FRAMES}", model]
    mine: list[Timing] = []
    theirs: list[Timing] = []
    script = str(ROOT / "benchmarks" / "onnx_run.py")
    command = [setting.onnxruntime, script, f"{name}.onnx", "padded.npy", "theirs.npy"]
    for _ in range(setting.rounds):
        mine.append(timed(ours(*compute, "ark:feats.ark", "ark:ours.ark"), folder))
        done = subprocess.run(
            command, cwd=folder, env=environment_of(1), capture_output=True, text=True, check=True
        )
        theirs.append(Timing(*map(float, done.stdout.split())))
    difference = np.abs(_matrices(folder / "ours.ark") - np.load(folder / "theirs.npy")).max()
    if not difference < 0.001:
        raise SystemExit(f"{name}: the outputs of onnxruntime differ by {difference}")
    work = f"nnet3-compute {name}, 60 whole utterances of {NUM_FRAMES} frames"
    best = least(mine), least(theirs)
    megabytes = best[0].megabytes, best[1].megabytes
    return Row(work, "onnxruntime", best[0].user, best[1].user, 1.0, 0.0, *megabytes)


def _write_padded(folder: Path, context: tuple[int, int]) -> None:
    """Write the utterances with copies of their first and last frames as context."""
    widths = ((0, 0), context, (0, 0))
    np.save(folder / "padded.npy", np.pad(_matrices(folder / "feats.ark"), widths, mode="edge"))


def _matrices(path: Path) -> np.ndarray:
    """All matrices of an archive, which have the same size, as one array."""
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader

    with SequentialTableReader(f"ark:{path}", MATRIX) as reader:
        return np.stack([matrix for _, matrix in reader])
