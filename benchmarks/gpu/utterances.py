"""Outputs and lattices of whole utterances on a GPU, beside one thread of the CPU.

    python benchmarks/gpu/utterances.py [--networks tdnn ...] [--utterances 12] [--try-out]
    python benchmarks/gpu/utterances.py --on-paper

Seconds are those that the programs log, without their start; of the GPU the best of two runs. Then
the largest difference of outputs, or of the likelihoods of a frame. Models have random parameters,
graphs are loops of random words. `--try-out` needs no GPU: two utterances, on the CPU both times.
`--on-paper` needs none, too, and counts what a minibatch of utterances asks of a GPU.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests")]

from ours import Ours, gpu_or_paper  # noqa: E402
from processes import ours, timed  # noqa: E402

from networks import NETWORKS, BenchNetwork  # noqa: E402
from nnet3tools.executor.simple_options import BatchComputationOptions  # noqa: E402
from nnet3tools.executor.utterance_computer import computer_together  # noqa: E402
from nnet3tools.fst.files import save_fst  # noqa: E402
from nnet3tools.fst.fst import NOT_FINAL, Fst  # noqa: E402
from nnet3tools.io.files import open_output  # noqa: E402
from nnet3tools.io.holders import MATRIX  # noqa: E402
from nnet3tools.io.table import SequentialTableReader, TableWriter  # noqa: E402
from nnet3tools.nnet.config import parse_config_lines  # noqa: E402
from nnet3tools.nnet.model_file import write_nnet  # noqa: E402
from nnet3tools.nnet.nnet import Nnet  # noqa: E402
from nnet3tools.tensor.cuda.device import get_device  # noqa: E402
from support.tiny_chain import model_of  # noqa: E402

_FRAMES = 1000
_WORDS = 2000
_PROGRAMS = ("nnet3-compute", "nnet3-compute-batch", "nnet3-latgen-faster-batch")
_PASSES = 6
"""On paper; the last one is counted: other shapes of the ends of blocks are replayed by then."""


def made_nnet(network: BenchNetwork) -> Nnet:
    """The network after two minibatches, as batch normalization needs statistics."""
    # training begins with 0 in the last layer, and paths through equal outputs are too many
    config = network.config.replace("param-stddev=0 ", "param-stddev=0.1 ")
    trained = Ours(replace(network, config=config), np.zeros(0), False, True, warm_up=2)
    return trained.trainer.nnet


def write_inputs(network: BenchNetwork, folder: Path, utterances: int, frames: int) -> None:
    """Write the network, the acoustic model, features and a graph."""
    write_nnet(made_nnet(network), str(folder / "0.raw"))
    phones = network.classes // 2
    tables = " ".join(f"TE -1 2 ( CE {2 * i} CE {2 * i + 1} )" for i in range(phones))
    topology = f"""<Topology> <TopologyEntry>
<ForPhones> {" ".join(map(str, range(1, phones + 1)))} </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1
<Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State> </TopologyEntry> </Topology>
"""
    tree = f"ContextDependency 1 0 ToPdf TE 0 {phones + 1} ( NULL {tables} ) EndContextDependency "
    with open_output(str(folder / "0.trans_mdl")) as writer:
        model_of(tree, topology)[1].write(writer)
    timed(ours("nnet3-am-init", "0.trans_mdl", "0.raw", "final.mdl"), folder)
    rng = np.random.default_rng(1)
    with TableWriter(f"ark:{folder}/feats", MATRIX) as table:
        for i in range(utterances):
            table.write(f"u{i}", rng.standard_normal((frames, network.dim)).astype(np.float32))
    save_fst(str(folder / "HCLG.fst"), _word_loop(rng, phones))


def _word_loop(rng: np.random.Generator, phones: int) -> Fst:
    """Words of three to eight phones, in any order; transitions 2i + 1 and 2i + 2 are phone i's."""
    arcs, cost = list[list[tuple[int, int, float, int]]]([[]]), float(np.log(_WORDS))
    for word in range(1, _WORDS + 1):
        spelt, at = rng.integers(phones, size=rng.integers(3, 9)), 0
        for i, phone in enumerate(spelt):
            arcs[at].append((2 * int(phone) + 2, 0 if i else word, 0.0 if i else cost, len(arcs)))
            at = len(arcs)
            arcs.append([(2 * int(phone) + 1, 0, 0.0, at)])
        arcs[at].append((0, 0, 0.0, 0))
    return Fst.from_lists(0, [0.0, *[NOT_FINAL] * (len(arcs) - 1)], arcs)


def figures(program: str, folder: Path, *options: str) -> tuple[float, Any]:
    """Seconds of one run, and its outputs as one matrix or its likelihood."""
    words = ["0.raw", "ark:feats", "ark:out"]
    if program == "nnet3-latgen-faster-batch":
        words = ["--acoustic-scale=1", "--max-active=2000", "final.mdl", "HCLG.fst", *words[1:]]
    timed(ours(program, *options, *words), folder)
    log = (folder / "log").read_text()
    found = re.search(r"Time taken ([\d.e+-]+)\s*s", log)
    if found is None:
        raise SystemExit(f"{program} logs no time:\n{log[-2000:]}")
    if likelihood := re.search(r"likelihood per frame was (\S+)", log):
        return float(found[1]), float(likelihood[1])
    with SequentialTableReader(f"ark:{folder}/out", MATRIX) as reader:
        return float(found[1]), np.concatenate([matrix for _, matrix in reader])


def beside(network: BenchNetwork, utterances: int, try_out: bool) -> None:
    """Print a line for each program."""
    with TemporaryDirectory() as name:
        folder, frames = Path(name), 120 if try_out else _FRAMES
        write_inputs(network, folder, 2 if try_out else utterances, frames)
        for program in _PROGRAMS:
            option = f"--frame-subsampling-factor={network.subsampling}"
            cpu, expected = figures(program, folder, "--use-gpu=no", option)
            use = "--use-gpu=no" if try_out else "--use-gpu=yes"
            runs = [figures(program, folder, use, option) for _ in range(2)]
            gpu, difference = min(s for s, _ in runs), np.abs(runs[-1][1] - expected).max()
            cells = program, network.name, f"{cpu:.2f}", f"{gpu:.2f}", f"{difference:.2g}"
            print("| " + " | ".join(cells) + " |", flush=True)


def on_paper(network: BenchNetwork, utterances: int) -> None:
    """Print what a minibatch asks of a GPU."""
    with gpu_or_paper(True) as like:
        device: Any = get_device()
        options = BatchComputationOptions(frame_subsampling_factor=network.subsampling)
        nnet = Nnet.from_config(parse_config_lines(network.config))
        computer = computer_together(nnet, options, like=like)
        computer._watch._has_warned = True  # memory on paper holds anything
        features = np.zeros((_FRAMES, network.dim), np.float32)
        for _ in range(_PASSES):
            device.log.clear()
            before = np.array([computer._num_minibatches, device.downloads, device.uploads])
            for i in range(utterances):
                computer.accept(f"u{i}", features)
            computer.finish()
            list(computer.ready())
        after = np.array([computer._num_minibatches, device.downloads, device.uploads])
        count, waits, copies = after - before
        graphs = len({launch.graph for launch in device.log if launch.graph is not None})
        alone = sum(launch.graph is None for launch in device.log)
        rows = utterances * _FRAMES / network.subsampling / count
        cells = f"{rows:.0f}", *(f"{x / count:.1f}" for x in (graphs, alone, copies, waits))
        print(f"| {network.name} | " + " | ".join(cells) + " |", flush=True)


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = ["tdnn", "tdnnf", "lstm"]
    parser.add_argument("--networks", nargs="*", default=names, choices=list(NETWORKS))
    parser.add_argument("--utterances", type=int, default=12, help="of 1,000 frames")
    parser.add_argument("--try-out", action="store_true")
    parser.add_argument("--on-paper", action="store_true")
    options = parser.parse_args()
    if options.on_paper:
        print("| network | outputs | graphs | launches alone | copies | host waits |")
        print("|---|---|---|---|---|---|", flush=True)
    else:
        print(
            "| program | network | CPU, s | GPU, s | difference |\n|---|---|---|---|---|",
            flush=True,
        )
    for name in options.networks:
        if options.on_paper:
            on_paper(NETWORKS[name](), options.utterances)
        else:
            beside(NETWORKS[name](), options.utterances, options.try_out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
