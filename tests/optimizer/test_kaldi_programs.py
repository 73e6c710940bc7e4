"""Our optimized programs against those that Kaldi's compiler made for the same requests.

Needs Kaldi's reference programs in ../shared (skipped without them). Run with -s for the table.
"""

import re
from pathlib import Path

import pytest

from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io.files import open_input
from nnet3tools.nnet.model_file import apply_config_file, read_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.program.computation import Computation
from nnet3tools.program.files import load_computation
from nnet3tools.program.lifetimes import max_memory_use

SHARED = Path(__file__).resolve().parents[3] / "shared"
CASES = sorted(p.parent for p in SHARED.glob("goldens/**/kaldi.comp"))
BENCH = sorted(p.parent for p in SHARED.glob("bench/*/request.txt"))


def compiled(nnet: Nnet, request: Path) -> Computation:
    with open_input(str(request)) as reader:
        return CachingOptimizingCompiler(nnet).compile(ComputationRequest.read(reader))


def compare(name: str, ours: Computation, commands: int, num_bytes: int) -> None:
    """Print a line `ours | Kaldi's | ratio` and require that ours is no larger."""
    mine = len(ours.commands), max_memory_use(ours)
    for what, a, b in zip(("commands", "bytes"), mine, (commands, num_bytes), strict=True):
        print(f"{name:32s} {what:8s} {a:11d} | {b:11d} | {a / b:.3f}")
    assert mine[0] <= commands
    assert mine[1] <= num_bytes


@pytest.mark.skipif(not CASES, reason="Kaldi's programs (../shared/goldens) are not here")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_more_commands_and_no_more_memory_than_kaldi(case: Path) -> None:
    nnet = read_nnet(str(case / "init.raw"))
    theirs = load_computation(str(case / "kaldi.comp"), nnet)
    ours = compiled(nnet, case / "request.txt")
    compare(case.name, ours, len(theirs.commands), max_memory_use(theirs))


@pytest.mark.skipif(not BENCH, reason="the networks for timing (../shared/bench) are not here")
@pytest.mark.parametrize("bench", BENCH, ids=lambda bench: bench.name)
def test_bench_requests_compile_to_no_more_than_kaldis_programs(bench: Path) -> None:
    row = re.search(
        rf"^\| {bench.name} \| (\d+) \| \d+ \| ([\d,]+) \|",
        (SHARED / "bench" / "README.md").read_text(),
        re.M,
    )
    assert row is not None
    nnet = Nnet()
    apply_config_file(nnet, str(bench / "final.config"))
    ours = compiled(nnet, bench / "request.txt")
    compare(bench.name, ours, int(row.group(1)), int(row.group(2).replace(",", "")))
