"""The time that the start of every program takes.

    python benchmarks/starts.py [--rounds N] [--checkout DIR]... [PROGRAM]...

Each program runs once a round on files of a few kilobytes, from each checkout in turn (this one
unless told), with this interpreter; `python -c pass` and `import numpy` run ten times as often.
Printed are the medians of the rounds' user seconds (some kernels share time out between user and
system by ticks of 4 ms: the least says nothing of so short runs), and the seconds that the imports
of NumPy, of this project and of other modules take in the last checkout, on the clock and a little
lengthened by `-X importtime`. Run `python -m compileall -q src` in each checkout first.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1]
NETWORK = HERE / "egs/japanese_vowels/conf/network.config"
PHONES = range(1, 10)
FRAMES = 400
RIGHT = "--left-context=3 --right-context=3"

TOPOLOGY = f"""<Topology> <TopologyEntry> <ForPhones> {" ".join(map(str, PHONES))} </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State> </TopologyEntry> </Topology>
"""
_LEAVES = " ".join(f"TE -1 1 ( CE {phone - 1} )" for phone in PHONES)
TREE = (
    f"ContextDependency 1 0 ToPdf TE 0 {len(PHONES) + 1} ( NULL {_LEAVES} ) EndContextDependency "
)

PREPARATION = f"""
copy-feats ark:feats.txt ark:feats
nnet3-init {NETWORK} 0.raw
nnet3-init --srand=1 {NETWORK} 1.raw
nnet3-am-init tree topo 0.raw 0.mdl
nnet3-get-egs --num-frames=8 {RIGHT} --num-pdfs=9 ark:feats ark:post ark:egs
nnet3-merge-egs --minibatch-size=4 ark:egs ark:merged
nnet3-compile 0.raw {HERE}/docs/request.txt comp
nnet3-init lda.config lda.raw
nnet3-acc-lda-stats lda.raw ark:egs lda.acc
copy-transition-model 0.mdl 0.tm
"""

COMMANDS = f"""
ali-to-pdf 0.mdl ark:ali ark:out
ali-to-phones 0.mdl ark:ali ark:out
ali-to-post ark:ali ark:out
am-info 0.mdl
apply-cmvn cmvn ark:feats ark:out
apply-cmvn-sliding ark:feats ark:out
compute-cmvn-stats ark:feats out
copy-feats ark:feats ark:out
copy-int-vector ark:ali ark:out
copy-matrix ark:feats ark:out
copy-transition-model 0.mdl out
copy-vector ark:vectors ark:out
feat-to-dim ark:feats -
feat-to-len ark:feats
ivector-mean ark:spk2utt ark:vectors ark:out
matrix-dim ark:feats
matrix-sum ark:feats ark:feats ark:out
matrix-sum-rows ark:feats ark:out
nnet-get-feature-transform out lda.acc
nnet3-acc-lda-stats lda.raw ark:egs out
nnet3-am-adjust-priors 0.mdl vector out
nnet3-am-copy 0.mdl out
nnet3-am-info 0.mdl
nnet3-am-init 0.tm 0.raw out
nnet3-am-train-transitions 0.mdl ark:ali out
nnet3-average 0.raw 1.raw out
nnet3-combine 0.raw 1.raw ark:merged out
nnet3-compile 0.raw {HERE}/docs/request.txt out
nnet3-computation-info 0.raw comp
nnet3-compute 0.raw ark:feats ark:out
nnet3-compute-batch 0.raw ark:feats ark:out
nnet3-compute-from-egs 0.raw ark:egs ark:out
nnet3-compute-prob 0.raw ark:merged
nnet3-copy 0.raw out
nnet3-copy-egs ark:egs ark:out
nnet3-get-egs --num-frames=8 {RIGHT} --num-pdfs=9 ark:feats ark:post ark:out
nnet3-get-egs-dense-targets --num-frames=8 --num-targets=12 ark:feats ark:feats ark:out
nnet3-info 0.raw
nnet3-init {NETWORK} out
nnet3-merge-egs --minibatch-size=4 ark:egs ark:out
nnet3-show-progress 0.raw 1.raw
nnet3-shuffle-egs ark:egs ark:out
nnet3-subset-egs --n=2 ark:egs ark:out
nnet3-train 0.raw ark:merged out
paste-feats ark:feats ark:feats ark:out
post-to-pdf-post 0.mdl ark:ids ark:out
post-to-smat --dim=9 ark:post ark:out
post-to-tacc 0.mdl ark:ids out
select-feats 0-3 ark:feats ark:out
splice-feats ark:feats ark:out
subsample-feats --n=2 ark:feats ark:out
subset-feats --n=1 ark:feats ark:out
sum-lda-accs out lda.acc lda.acc
transform-feats transform ark:feats ark:out
tree-info tree
vector-sum ark:vectors ark:vectors ark:out
"""


def write_inputs() -> None:
    """Write the small input files into the working directory."""
    Path("topo").write_text(TOPOLOGY)
    Path("tree").write_text(TREE)
    Path("lda.config").write_text(
        "input-node name=input dim=12\noutput-node name=output input=Offset(input, 1)\n"
    )
    generator = random.Random(0)
    rows = [" ".join(f"{generator.gauss(0, 1):.3f}" for _ in range(12)) for _ in range(FRAMES)]
    row = rows[0]
    Path("feats.txt").write_text("\n  ".join(["a  [", *rows]) + " ]\n")
    Path("post").write_text("a " + " ".join(f"[ {i % 9} 1 ]" for i in range(FRAMES)) + "\n")
    Path("ids").write_text("a " + "[ 1 1 ] " * FRAMES + "\n")
    Path("ali").write_text("a " + "1 " * (FRAMES - 1) + "2\n")
    Path("vector").write_text(f" [ {'0.1 ' * 9}]\n")
    Path("vectors").write_text(f"a  [ {row} ]\n")
    Path("spk2utt").write_text("s a\n")
    Path("transform").write_text(f" [\n  {row}\n  {row} ]\n")
    Path("cmvn").write_text(f" [\n  {row} {FRAMES}\n  {row} 0 ]\n")


def run(checkout: Path, words: list[str], *flags: str) -> tuple[float, str]:
    """User seconds of a program of a checkout, and what it wrote on standard error."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout}/src", "OMP_NUM_THREADS": "1"}
    with open("stderr", "w+") as stderr:
        command = [sys.executable, *flags, *words]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr
        )
        _, status, usage = os.wait4(process.pid, 0)
        stderr.seek(0)
        log = stderr.read()
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{log[-2000:]}")
    return usage.ru_utime, log


def program(line: str) -> list[str]:
    """The interpreter's arguments for a line of COMMANDS."""
    return ["-m", "nnet3tools.cli", *line.split()]


def start(checkout: Path, line: str) -> float:
    """User seconds of a line of COMMANDS; NaN if the checkout has no such program."""
    if not (checkout / "bin" / line.split()[0]).exists():
        return float("nan")
    return run(checkout, program(line))[0]


def imports(checkout: Path, line: str) -> str:
    """The seconds that a program's imports take, by package."""
    took = {"numpy": 0.0, "nnet3tools": 0.0, "others": 0.0}
    for entry in run(checkout, program(line), "-X", "importtime")[1].splitlines():
        if found := re.fullmatch(r"import time:\s*(\d+) \|\s*\d+ \|\s*(\w+).*", entry):
            package = found[2] if found[2] in took else "others"
            took[package] += int(found[1]) / 1e6
    return ", ".join(f"{package} {seconds:.3f}" for package, seconds in took.items())


def main() -> None:
    """Measure, and print the table as the runs go."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--checkout", type=Path, action="append")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    options = parser.parse_args()
    checkouts = [path.resolve() for path in options.checkout or [HERE]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_inputs()
        for line in PREPARATION.strip().splitlines():
            run(HERE, program(line))
        for code in ("pass", "import numpy"):
            bare = median(run(HERE, ["-c", code])[0] for _ in range(10 * options.rounds))
            print(f"python -c {code!r}: {bare:.3f} s", flush=True)
        for line in COMMANDS.strip().splitlines():
            name = line.split()[0]
            if options.programs and name not in options.programs:
                continue
            times = [[start(c, line) for c in checkouts] for _ in range(options.rounds)]
            best = " ".join(f"{median(column):.3f}" for column in zip(*times, strict=True))
            print(f"{name:30} {best}   {imports(checkouts[-1], line)}", flush=True)


if __name__ == "__main__":
    main()
