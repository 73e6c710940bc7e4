"""nnet3-train in turns with Kaldi's and with PyTorch: time on one thread and two, and memory.

Times beside Kaldi include the start of both programs. PyTorch has no program to start: times beside
PyTorch exclude the start and the first three minibatches of both, which compile programs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from processes import ROOT, Timing, environment_of, ours, timed
from rows import Row, Setting, least
from train import NETWORKS, Network, make

TARGETS = {"tdnn": 0.8, "tdnnf": 1.0, "lstm": 0.7}
ON_TWO_THREADS = {"tdnn": 0.9, "tdnnf": 1.0, "lstm": 0.9}
WITHOUT_NATURAL_GRADIENT = {"tdnn": 0.8, "tdnnf": 0.8}
"""Ours over PyTorch's."""
MEGABYTES = 45.0
"""What ours may take beside Kaldi's."""


def chosen(setting: Setting) -> list[Network]:
    """The networks that the caller named."""
    return [network for network in NETWORKS if network.name in setting.networks]


def training(setting: Setting) -> Iterator[Row]:
    """All rows of all networks."""
    for network in chosen(setting):
        make(network, setting.folder)
        yield from _rows(setting, network)


def training_on_two(setting: Setting) -> Iterator[Row]:
    """Elapsed times on two threads each, which mean something on an idle machine only."""
    for network in chosen(setting) if setting.torch or setting.before else ():
        make(network, setting.folder)
        name, work = network.name, f"train {network.name}, two threads, elapsed"
        if setting.before:
            yield setting.beside_reference(work, _words(name, network), 1.0, threads=2)
        else:
            at_most = ON_TWO_THREADS[name]
            yield from _beside_torch(setting, network, work, name, at_most, threads=2)


def _rows(setting: Setting, network: Network) -> Iterator[Row]:
    name, target = network.name, TARGETS[network.name]
    row = setting.beside_reference(f"train {name}", _words(name, network), 1.0)
    yield row
    if row.ours_megabytes is not None and row.theirs_megabytes is not None:
        sizes = row.ours_megabytes, row.theirs_megabytes
        yield Row(f"memory of train {name}", row.reference, *sizes, 1.0, MEGABYTES, unit="MB")
    if not setting.torch or setting.before:
        return
    yield from _beside_torch(setting, network, f"train {name}", name, target, ("", "compiled"))
    if name in WITHOUT_NATURAL_GRADIENT:
        plain = _without_natural_gradient(setting, name)
        work, at_most = f"train {name} without natural gradient", WITHOUT_NATURAL_GRADIENT[name]
        yield from _beside_torch(setting, network, work, plain, at_most)


def _words(model: str, network: Network, egs: str = "") -> list[str]:
    egs = f"ark:{egs or network.name + '.egs'}"
    return ["nnet3-train", "--use-gpu=no", f"{model}.raw", egs, f"{model}.out"]


def _rest(whole: Timing, first: Timing) -> Timing:
    return Timing(whole.user - first.user, whole.elapsed - first.elapsed, whole.megabytes)


def _beside_torch(
    setting: Setting, network: Network, work: str, model: str, target: float,
    ways: Sequence[str] = ("",), threads: int = 1,
) -> Iterator[Row]:  # fmt: skip
    """The rows of a training in turns with PyTorch's: eager (way ""), or by torch.compile."""
    words, first = _words(model, network), _words(model, network, "first.egs")
    begin = ours("nnet3-subset-egs", "--n=3", f"ark:{network.name}.egs", "ark:first.egs")
    timed(begin, setting.folder)
    count = str(_num_minibatches(setting, network) - 3)
    mine: list[Timing] = []
    theirs: list[list[Timing]] = []
    for _ in range(setting.rounds):
        all_of_them = timed(ours(*words), setting.folder, threads)
        mine.append(_rest(all_of_them, timed(ours(*first), setting.folder, threads)))
        theirs.append([_torch_seconds(setting, network.name, count, threads, way) for way in ways])
    for way, timings in zip(ways, zip(*theirs, strict=True), strict=True):
        best = least(mine, threads), least(timings, threads)
        took = [t.user if threads == 1 else t.elapsed for t in best]
        yield Row(work, "torch.compile" if way else "PyTorch", took[0], took[1], target)


def _torch_seconds(setting: Setting, name: str, count: str, threads: int, way: str) -> Timing:
    script = str(ROOT / "benchmarks" / "torch_train.py")
    command = [setting.torch, script, name, count, str(threads), way]
    said = _output(command, env=environment_of(threads)).stdout.split()
    return Timing(float(said[0]), float(said[1]), 0.0)


def _num_minibatches(setting: Setting, network: Network) -> int:
    """The number of minibatches that a network's examples make."""
    copy = ours("nnet3-copy-egs", f"ark:{network.name}.egs", "ark:/dev/null")
    said = _output(copy, cwd=setting.folder).stderr.rpartition("wrote ")[2]
    return int(said.split()[0].rstrip(","))


def _without_natural_gradient(setting: Setting, name: str) -> str:
    """The same network with plain gradients, made from its config."""
    plain = f"{name}-plain"
    text = (setting.folder / f"{name}.config").read_text()
    text = text.replace("NaturalGradientAffineComponent", "AffineComponent")
    text = re.sub(
        r"type=(TdnnComponent|LinearComponent)", r"\g<0> use-natural-gradient=false", text
    )
    (setting.folder / f"{plain}.config").write_text(text)
    words = ["nnet3-init", "--srand=0", f"{plain}.config", f"{plain}.raw"]
    timed(ours(*words), setting.folder)
    return plain


def _output(command: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, **more)
