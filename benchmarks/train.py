"""Times nnet3-train on three networks, on one thread and on two.

    python benchmarks/train.py [--networks tdnn tdnnf lstm] [--threads 1 2] [--rounds 1] [--dir DIR]
                               [--kaldi DIR]

Data and networks are made in a temporary folder (in DIR, and found again there, if it is given).
The networks are those of ../shared/bench, where a checkout has it; else the configs below make
networks of the same layers and sizes. With --kaldi, Kaldi's own nnet3-train in that folder does the
same work in turns with ours. User time is what to compare on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from processes import ROOT, Timing, ours, timed
from rows import least

SHARED = ROOT.parent / "shared" / "bench"


@dataclass(frozen=True)
class Network:
    """A benchmark: how its examples are cut, and how often its minibatches are repeated.

    At least 75 follow the first three, so that the first natural-gradient updates, which come with
    every minibatch, do not decide.
    """

    name: str
    egs_options: str
    minibatch_size: int
    repeats: int


NETWORKS = (
    Network("tdnn", "--left-context=10 --right-context=10 --num-frames=8", 64, 2),
    Network("tdnnf", "--left-context=15 --right-context=15 --num-frames=50", 32, 6),
    Network(
        "lstm",
        "--left-context=10 --right-context=0 --num-frames=20 --left-context-initial=0",
        32,
        3,
    ),
)


# -- networks of the same sizes, for checkouts without ../shared


class _Config:
    """Config lines, written layer by layer."""

    def __init__(self) -> None:
        self.lines = ["input-node name=input dim=40"]

    def add(self, name: str, kind: str, options: str, source: str) -> str:
        """Add a component and its node; returns the node's name."""
        self.lines.append(f"component name={name} type={kind} {options}")
        self.lines.append(f"component-node name={name} component={name} input={source}")
        return name

    def affine(self, name: str, inputs: int, outputs: int, source: str, more: str = "") -> str:
        """An affine layer with natural gradient."""
        options = f"input-dim={inputs} output-dim={outputs} max-change=0.75 {more}"
        return self.add(name, "NaturalGradientAffineComponent", options, source)

    def relu_norm(self, name: str, dim: int, source: str) -> str:
        """ReLU and batch normalisation."""
        options = f"dim={dim} self-repair-scale=1e-05"
        relu = self.add(f"{name}.relu", "RectifiedLinearComponent", options, source)
        return self.add(f"{name}.batchnorm", "BatchNormComponent", f"dim={dim}", relu)

    def text(self, inputs: int, source: str) -> str:
        """All lines, with an output layer of 200 classes at the end."""
        last = self.affine("output.affine", inputs, 200, source, "param-stddev=0 bias-stddev=0")
        last = self.add("output.log-softmax", "LogSoftmaxComponent", "dim=200", last)
        self.lines.append(f"output-node name=output input={last} objective=linear")
        return "\n".join(self.lines) + "\n"


def _splice(source: str, offsets: tuple[int, ...]) -> str:
    return "Append(" + ", ".join(f"Offset({source}, {t})" if t else source for t in offsets) + ")"


def tdnn_config() -> str:
    """Five layers of 512, 3.35 M parameters."""
    config, node, dim = _Config(), "input", 40
    splices = ((-2, -1, 0, 1, 2), (-1, 0, 1), (-1, 0, 1), (-3, 0, 3), (-3, 0, 3))
    for i, offsets in enumerate(splices, 1):
        source = _splice(node, offsets)
        node = config.affine(f"tdnn{i}.affine", dim * len(offsets), 512, source)
        node, dim = config.relu_norm(f"tdnn{i}", 512, node), 512
    return config.text(dim, node)


def tdnnf_config() -> str:
    """Eight layers of 768 with bottlenecks of 96, 2.20 M parameters."""
    return tdnnf(768, 96, (1, 1, 0, 3, 3, 3, 3), 192)


def tdnnf(width: int, bottleneck: int, strides: tuple[int, ...], prefinal: int) -> str:
    """Config of a spliced, a linear, and a factored layer for each stride (0: no context)."""
    config = _Config()
    node = config.affine("tdnn1.affine", 120, width, _splice("input", (-1, 0, 1)))
    node = config.relu_norm("tdnn1", width, node)
    for i, stride in enumerate(strides, 2):
        name, skip = f"tdnnf{i}", node
        down, up = (f"-{stride},0", f"0,{stride}") if stride else ("0", "0")
        for part, options in (
            ("linear", f"input-dim={width} output-dim={bottleneck} use-bias=false "
             f"time-offsets={down} orthonormal-constraint=-1.0"),
            ("affine", f"input-dim={bottleneck} output-dim={width} time-offsets={up}"),
        ):  # fmt: skip
            options = f"max-change=0.75 l2-regularize=0.0 {options}"
            node = config.add(f"{name}.{part}", "TdnnComponent", options, node)
        node = config.relu_norm(name, width, node)
        source = f"Sum(Scale(0.66, {skip}), {node})"
        node = config.add(f"{name}.noop", "NoOpComponent", f"dim={width}", source)
    options = f"input-dim={width} output-dim={prefinal} max-change=0.75"
    return config.text(prefinal, config.add("prefinal-l", "LinearComponent", options, node))


def lstm_config() -> str:
    """Two LSTM layers, 256 cells, projections 64 + 64, delay 3; 0.40 M parameters."""
    config, node, dim = _Config(), "input", 40
    for i in (1, 2):
        name = f"lstm{i}"
        source = f"Append({node}, IfDefined(Offset({name}.r_trunc, -3)))"
        gates = config.affine(f"{name}.W_all", dim + 64, 1024, source)
        source = f"Append({gates}, IfDefined(Offset({name}.c_trunc, -3)))"
        options = "cell-dim=256 use-dropout=false max-change=0.75"
        cell = config.add(f"{name}.cell", "LstmNonlinearityComponent", options, source)
        ranges = ((f"{name}.c", cell, 0, 256), (f"{name}.m", cell, 256, 256))
        for part, of, offset, size in ranges:
            _add_range(config, part, of, offset, size)
        node = config.affine(f"{name}.rp", 256, 128, f"{name}.m")
        _add_range(config, f"{name}.r", node, 0, 64)
        truncated = config.add(
            f"{name}.cr_trunc",
            "BackpropTruncationComponent",
            "dim=320 clipping-threshold=30 zeroing-threshold=15 zeroing-interval=20 "
            "recurrence-interval=3 scale=0.85",
            f"Append({name}.c, {name}.r)",
        )
        _add_range(config, f"{name}.c_trunc", truncated, 0, 256)
        _add_range(config, f"{name}.r_trunc", truncated, 256, 64)
        dim = 128
    return config.text(dim, node)


def _add_range(config: _Config, name: str, of: str, offset: int, size: int) -> None:
    config.lines.append(
        f"dim-range-node name={name} input-node={of} dim-offset={offset} dim={size}"
    )


# -- making the data


def _write_features(folder: Path) -> None:
    """Write 60 utterances of 400 frames of 40 numbers, with posteriors over 200 classes."""
    rng, frames = np.random.default_rng(0), np.arange(400)
    with open(folder / "feats.txt", "w") as feats, open(folder / "post.txt", "w") as posts:
        for i in range(60):
            values = rng.standard_normal((400, 40)).astype(np.float32)
            labels = (frames // 5 + i) % 200
            values[frames, labels % 40] += 3
            rows = "\n".join(" ".join(f"{v:.6g}" for v in row) for row in values)
            feats.write(f"utt{i:03d} [\n{rows} ]\n")
            posts.write(f"utt{i:03d} " + " ".join(f"[ {label} 1 ]" for label in labels) + "\n")


def _shell(command: str, folder: Path, threads: int = 1) -> None:
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    environment["PATH"] = f"{ROOT / 'bin'}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{command}\nfailed:\n{done.stderr[-2000:]}")


def make(network: Network, folder: Path) -> None:
    """Write the initial network and the minibatches, unless the folder has them."""
    if (folder / f"{network.name}.egs").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "feats.txt").exists():
        _write_features(folder)
    config = folder / f"{network.name}.config"
    shared = SHARED / network.name / "final.config"
    own = {"tdnn": tdnn_config, "tdnnf": tdnnf_config, "lstm": lstm_config}[network.name]
    config.write_text(shared.read_text() if shared.exists() else own())
    _shell(
        f"nnet3-init --srand=0 {config} {network.name}.raw && "
        f"nnet3-get-egs {network.egs_options} --num-pdfs=200 ark:feats.txt ark:post.txt ark:- | "
        "nnet3-shuffle-egs --srand=1 ark:- ark:- | "
        f"nnet3-merge-egs --minibatch-size={network.minibatch_size} ark:- ark:new.egs && "
        f"cat {'new.egs ' * network.repeats} > all.egs && mv all.egs {network.name}.egs",
        folder,
    )


# -- timing


def train(network: Network, folder: Path, threads: int, program: list[str]) -> Timing:
    """One run of nnet3-train over all minibatches."""
    name = network.name
    options = ["--use-gpu=no", f"{name}.raw", f"ark:{name}.egs", f"{name}.out"]
    return timed([*program, *options], folder, threads)


Runs = dict[tuple[Network, int], list[Timing]]


def _runs(args: argparse.Namespace, folder: Path) -> list[Runs]:
    """The timings of all cases, ours and (if asked for) Kaldi's."""
    chosen = [network for network in NETWORKS if network.name in args.networks]
    for network in chosen:
        make(network, folder)
    programs = [ours("nnet3-train")]
    if args.kaldi:
        programs.append([str(args.kaldi.resolve() / "nnet3-train")])
    cases = [(network, threads) for network in chosen for threads in args.threads]
    runs: list[Runs] = [{case: [] for case in cases} for _ in programs]
    for _ in range(args.rounds):  # in turn, so that a slow moment hits all
        for case in cases:
            for program, found in zip(programs, runs, strict=True):
                found[case].append(train(case[0], folder, case[1], program))
    return runs


def main() -> None:
    """Write missing data, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = [network.name for network in NETWORKS]
    parser.add_argument("--networks", nargs="+", choices=names, default=names)
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="where data is made and kept")
    parser.add_argument("--kaldi", type=Path, help="folder with Kaldi's nnet3-train")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measured, *others = _runs(args, (args.dir or Path(temporary)).resolve())
    print(
        "| network | threads | user s | elapsed s | MB | Kaldi user s | Kaldi MB | user s / Kaldi |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for (network, threads), timings in measured.items():
        t = least(timings, threads)
        row = f"| {network.name} | {threads} | {t.user:.1f} | {t.elapsed:.1f} | {t.megabytes:.0f} |"
        if others:
            kaldi = least(others[0][network, threads], threads)
            row += f" {kaldi.user:.1f} | {kaldi.megabytes:.0f} | {t.user / kaldi.user:.2f} |"
        print(row)


if __name__ == "__main__":
    main()
