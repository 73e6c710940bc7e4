"""How far LF-MMI training is from Kaldi's, and how far Kaldi's is from itself.

    python benchmarks/drift.py --kaldi DIR BENCH...

BENCH is a folder with init.raw, den.fst and minibatches.ark (bi and e2e-mono of an4-chain). Kaldi's
nnet3-copy makes the models to start from. Printed for the first minibatches: how far the parameters
are from Kaldi's, over how far they went, for ours and for Kaldi with OPENBLAS_CORETYPE=Haswell.
Then the objective of a pass for learning rates that differ in the sixth digit, ours and Kaldi's.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from processes import ROOT, ours, timed

from nnet3tools.chain.example import CHAIN_EXAMPLE
from nnet3tools.io.table import SequentialTableReader, TableWriter
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.model_file import read_nnet

COUNTS = (1, 2, 3, 4, 6, 8, 10)
"""Minibatches of each comparison of parameters."""
RATES = [f"0.00100000{digit}" for digit in range(6)]
XENT = {"bi": "0.1"}
"""Bench -> weight of its cross-entropy branch, if it has one."""
_OBJECTIVE = re.compile(r"average objective function for 'output' is (\S+)")


class Bench:
    """One bench, in a folder for what is made."""

    def __init__(self, source: Path, kaldi: Path, folder: Path) -> None:
        self._source, self._kaldi, self._folder = source, kaldi, folder

    def start(self, rate: str) -> None:
        """Make 0.raw, the model to start from."""
        words = ("nnet3-copy", f"--learning-rate={rate}", f"{self._source}/init.raw", "0.raw")
        self._run(words, True)

    def train(self, by_kaldi: bool, examples: str, **variables: str) -> float:
        """Train 0.raw to 1.raw; the objective per frame."""
        weight = XENT.get(self._source.name, "0.0")
        words = (
            "nnet3-chain-train", "--use-gpu=no", "--apply-deriv-weights=false",
            "--l2-regularize=0.00005", "--leaky-hmm-coefficient=0.1", f"--xent-regularize={weight}",
            "--max-param-change=2.0", "--srand=0", "0.raw", f"{self._source}/den.fst",
            f"ark:{examples}", "1.raw",
        )  # fmt: skip
        self._run(words, by_kaldi, **variables)
        found = _OBJECTIVE.findall((self._folder / "log").read_text())
        return float(found[-1])

    def _run(self, words: Sequence[str], by_kaldi: bool, **variables: str) -> None:
        command = [str(self._kaldi / words[0]), *words[1:]] if by_kaldi else ours(*words)
        timed(command, self._folder, 1, ROOT, **variables)

    def parameters(self, name: str) -> np.ndarray:
        """All parameters of a model."""
        return vectorize(read_nnet(str(self._folder / name))).astype(np.float64)

    def first(self, count: int) -> str:
        """An archive of the first minibatches."""
        name = str(self._folder / "first.ark")
        with (
            SequentialTableReader(f"ark:{self._source}/minibatches.ark", CHAIN_EXAMPLE) as reader,
            TableWriter(f"ark:{name}", CHAIN_EXAMPLE) as writer,
        ):
            for _, (key, example) in zip(range(count), reader, strict=False):
                writer.write(key, example)
        return name

    def distances(self, count: int) -> tuple[float, float]:
        """Of the parameters after so many minibatches: ours from Kaldi's, Kaldi's from its own."""
        examples, found = self.first(count), []
        for by_kaldi, variables in (
            (True, {}),
            (False, {}),
            (True, {"OPENBLAS_CORETYPE": "Haswell"}),
        ):
            self.train(by_kaldi, examples, **variables)
            found.append(self.parameters("1.raw"))
        theirs, *others = found
        change = np.linalg.norm(theirs - self.parameters("0.raw"))
        mine, other = (float(np.linalg.norm(each - theirs) / change) for each in others)
        return mine, other


def compare(bench: Bench, examples: str) -> None:
    """Both comparisons of one bench, printed."""
    bench.start(RATES[0])
    print("minibatches | ours from Kaldi | Kaldi with other BLAS kernels from Kaldi")
    for count in COUNTS:
        mine, other = bench.distances(count)
        print(f"{count} | {mine:.2g} | {other:.2g}", flush=True)
    objectives: dict[bool, list[float]] = {True: [], False: []}
    for rate in RATES:
        bench.start(rate)
        for by_kaldi, found in objectives.items():
            found.append(bench.train(by_kaldi, examples))
    for name, found in zip(("Kaldi", "ours"), objectives.values(), strict=True):
        mean, deviation = statistics.mean(found), statistics.stdev(found)
        print(f"{name}: {mean:.5f}, standard deviation {deviation:.5f}, {found}")


def main() -> None:
    """Compare on each bench."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kaldi", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("benches", nargs="+", type=lambda text: Path(text).resolve())
    options = parser.parse_args()
    for source in options.benches:
        print(source.name)
        with tempfile.TemporaryDirectory() as folder:
            compare(Bench(source, options.kaldi, Path(folder)), f"{source}/minibatches.ark")


if __name__ == "__main__":
    main()
