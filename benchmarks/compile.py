"""How long compiling takes, and how good the programs are, beside Kaldi's.

    python benchmarks/compile.py [--repeat N] DIRECTORY...

Each directory holds a network (final.config or init.raw) and request.txt. Commands and bytes are
compared with Kaldi's program kaldi.comp where there is one, times and sizes with what is known of
Kaldi (commit f4007661, 2-core machine, 1 thread) for the directories named in KALDI.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.io.files import open_input
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.model_file import read_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.program.computation import Computation
from nnet3tools.program.files import load_computation
from nnet3tools.program.lifetimes import max_memory_use


class Figures(NamedTuple):
    """Of Kaldi for one request."""

    commands: int
    num_bytes: int
    milliseconds: dict[str, float]
    """By way of compiling: "shortcut", "full"."""


KALDI = {
    "tdnn": Figures(146, 39_649_280, {"shortcut": 2.4, "full": 34.0}),
    "tdnnf": Figures(295, 136_491_008, {"shortcut": 13.5, "full": 351.0}),
    "lstm": Figures(588, 29_312_000, {"shortcut": 6.6, "full": 32.0}),
}


def read_case(directory: Path) -> tuple[Nnet, ComputationRequest]:
    """The network and the request in a directory."""
    config = directory / "final.config"
    if (directory / "init.raw").exists():
        nnet = read_nnet(str(directory / "init.raw"))
    else:
        nnet = Nnet.from_config(parse_config_lines(config.read_text(), str(config)))
    with open_input(str(directory / "request.txt")) as reader:
        return nnet, ComputationRequest.read(reader)


def best_time(
    nnet: Nnet, request: ComputationRequest, use_shortcut: bool, repeat: int
) -> tuple[float, dict[str, float], Computation]:
    """(best seconds of the processor, how they divide on the clock, the program)."""
    os.environ["NNET3TOOLS_NO_PROGRAM_CACHE"] = "1"  # compile, and read no kept program
    best: tuple[float, dict[str, float]] = (float("inf"), {})
    for _ in range(repeat):
        compiler = CachingOptimizingCompiler(nnet, None, CompilerOptions(use_shortcut=use_shortcut))
        # One thread does it all; its own time says more than the clock on a busy machine.
        began = time.process_time()
        program = compiler.compile(request)
        elapsed = time.process_time() - began
        if elapsed < best[0]:
            best = elapsed, dict(compiler.seconds)
    return *best, program


def longer(request: ComputationRequest, num_frames: int) -> ComputationRequest:
    """A request whose inputs and outputs go on for so many frames more."""

    def spec(io: IoSpecification) -> IoSpecification:
        times = np.unique(io.indexes[:, 1])
        if len(times) > 1:
            step = int(np.diff(times).min())
            times = np.append(times, times[-1] + step * np.arange(1, num_frames // step + 1))
        n = np.arange(int(io.indexes[:, 0].max()) + 1)
        by_time = len(n) > 1 and io.indexes[1, 0] == 1
        rows = make_indexes(n, times[:, None]) if by_time else make_indexes(n[:, None], times)
        return dataclasses.replace(io, indexes=rows)

    inputs, outputs = map(spec, request.inputs), map(spec, request.outputs)
    return dataclasses.replace(request, inputs=list(inputs), outputs=list(outputs))


def further_time(nnet: Nnet, request: ComputationRequest, repeat: int) -> float:
    """Seconds of the processor that one of five longer requests takes after this one, at best."""
    requests = [longer(request, 6 * k) for k in range(1, 6)]
    best = float("inf")
    for _ in range(repeat):
        compiler = CachingOptimizingCompiler(nnet)
        compiler.compile(request)
        began = time.process_time()
        for further in requests:
            compiler.compile(further)
        best = min(best, (time.process_time() - began) / len(requests))
    return best


def kaldi_figures(directory: Path, nnet: Nnet) -> Figures | None:
    """What Kaldi makes of the directory's request, as far as that is known."""
    if directory.name in KALDI:
        return KALDI[directory.name]
    if not (directory / "kaldi.comp").exists():
        return None
    program = load_computation(str(directory / "kaldi.comp"), nnet)
    return Figures(len(program.commands), max_memory_use(program), {})


def against(ours: float, kaldis: float | None, digits: int = 0) -> str:
    """Three columns: ours, Kaldi's, their ratio."""
    if kaldis is None:
        return f"{ours:11.{digits}f} |           - |     -"
    return f"{ours:11.{digits}f} | {kaldis:11.{digits}f} | {ours / kaldis:5.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("directories", nargs="+", type=Path)
    options = parser.parse_args()
    print(f"{'':40} {'ours':>11} | {'Kaldi':>11} | ratio")
    for directory in options.directories:
        nnet, request = read_case(directory)
        kaldi = kaldi_figures(directory, nnet)
        for way in ("shortcut", "full"):
            seconds, parts, program = best_time(nnet, request, way == "shortcut", options.repeat)
            known = None if kaldi is None else kaldi.milliseconds.get(way)
            name = f"{directory.name}, {way}"
            division = ", ".join(
                f"{k} {1e3 * v:.1f}" for k, v in parts.items() if v and k != "total"
            )
            figures = against(1e3 * seconds, known, 1)
            print(f"{name + ': ms':40} {figures}   (on the clock: {division})")
        further = 1e3 * further_time(nnet, request, options.repeat)
        print(f"{directory.name + ', other lengths: ms':40} {against(further, None, 1)}")
        commands = None if kaldi is None else kaldi.commands
        num_bytes = None if kaldi is None else kaldi.num_bytes
        print(f"{directory.name + ': commands':40} {against(len(program.commands), commands)}")
        print(f"{directory.name + ': peak bytes':40} {against(max_memory_use(program), num_bytes)}")


if __name__ == "__main__":
    main()
