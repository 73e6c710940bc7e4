"""Training, computing, compiling, starting and examples, in turns with Kaldi and PyTorch.

    benchmarks/run [--kaldi DIR] [--torch PYTHON] [--onnxruntime PYTHON] [--rounds 1]
                   [--only WORD...] [--networks WORD...] [--dir DIR]
    benchmarks/run --before CHECKOUT|COMMIT [--slower 1.05] [--rounds 1] [--only WORD...]

DIR holds Kaldi's programs; PYTHON is an interpreter with NumPy and PyTorch, or onnxruntime. Without
them Kaldi's figures of another day, where they are known, stand in, and other rows are left out.
With --before, programs run in turns with those of another checkout or commit instead; with
--slower the exit status is 1 if a row takes more than that ratio of the time before, also when it
is measured twice more. What is compared are user seconds on one thread, the least of the rounds; on
two threads elapsed ones, which only an idle machine gives. Each BLAS takes the kernels that it
finds best: OPENBLAS_CORETYPE of the environment is for reproducing numbers, and is not passed on. A
table goes to standard output, and everything to benchmarks/results/DATE-TIME.json, which history.py
draws. Data is made in a temporary folder, or found and kept in --dir. Both checkouts' Python files
are compiled first.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from compile import best_time, further_time, read_case
from examples import COMMANDS, NUM_EXAMPLES, make_many, seconds_to_deliver
from kernels import compiling_kernels, operators
from machine import described, machine
from onnx_turns import beside_onnxruntime
from processes import ROOT, ours, timed
from rows import HEAD, Row, Setting
from speech_examples import SPEECH_COMMANDS, make_speech
from train import NETWORKS, SHARED, make
from training_turns import chosen, training, training_on_two

RESULTS = ROOT / "benchmarks" / "results"
CHAIN = {"bi": "0.1", "e2e-mono": "0.0"}
"""Bench of LF-MMI -> weight of its cross-entropy branch."""
COMPILING = {"tdnn": 0.008, "tdnnf": 0.015, "lstm": 0.02}
"""Network -> seconds at most."""


Part = Callable[[Setting], Iterator[Row]]


def computing(setting: Setting) -> Iterator[Row]:
    """nnet3-compute and nnet3-compute-batch."""
    for network in chosen(setting):
        make(network, setting.folder)
    _write_random_lengths(setting.folder / "random.ark", 100)
    convert = ours("copy-feats", "ark:feats.txt", "ark:feats.ark")
    timed(convert, setting.folder)
    for network in chosen(setting):
        model = f"{network.name}.raw"
        for program, target in (("nnet3-compute", 1.0), ("nnet3-compute-batch", 0.9)):
            for data, what in (("feats", "60 x 400 frames"), ("random", "100 of random length")):
                words = [program, "--use-gpu=no", model, f"ark:{data}.ark", "ark:/dev/null"]
                yield setting.beside_reference(f"{program} {network.name}, {what}", words, target)
        if setting.onnxruntime and not setting.before:
            yield beside_onnxruntime(setting, network.name)


def _write_random_lengths(path: Path, count: int) -> None:
    """Utterances of 50 to 1,500 frames."""
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import TableWriter

    rng = np.random.default_rng(1)
    with TableWriter(f"ark:{path}", MATRIX) as writer:
        for i in range(count):
            length = int(rng.integers(50, 1501))
            writer.write(f"u{i:04d}", rng.standard_normal((length, 40)).astype(np.float32))


def chain(setting: Setting) -> Iterator[Row]:
    """nnet3-chain-train on AN4, if its examples are there."""
    for name, weight in CHAIN.items():
        if not (source := SHARED / "an4-chain" / name).exists():
            continue
        start = f"chain-{name}.raw"
        timed(
            ours("nnet3-copy", "--learning-rate=0.001", f"{source}/init.raw", start), setting.folder
        )
        words = [
            "nnet3-chain-train", "--use-gpu=no", "--apply-deriv-weights=false",
            "--l2-regularize=0.00005", "--leaky-hmm-coefficient=0.1", f"--xent-regularize={weight}",
            "--max-param-change=2.0", "--srand=0", start, f"{source}/den.fst",
            f"ark:{source}/minibatches.ark", "chain.out",
        ]  # fmt: skip
        yield setting.beside_reference(f"nnet3-chain-train {name}", words, 0.9)


def compiling(setting: Setting) -> Iterator[Row]:
    """Compile the bench requests in this process, or by nnet3-compile in turns with `before`."""
    for name in COMPILING:
        if (SHARED / name).exists() and setting.before:
            make(next(n for n in NETWORKS if n.name == name), setting.folder)
            words = ["nnet3-compile", f"{name}.raw", f"{SHARED / name}/request.txt", "start.comp"]
            yield setting.beside_reference(f"nnet3-compile {name}", words, 1.0)
        elif (SHARED / name).exists():
            nnet, request = read_case(SHARED / name)
            took, _, _ = best_time(nnet, request, True, max(5, setting.rounds))
            yield Row(f"compile {name}", "", took, None, COMPILING[name])
            other = further_time(nnet, request, max(5, setting.rounds))
            yield Row(f"compile {name}, another length", "the first", other, took, 0.2)


def starting(setting: Setting) -> Iterator[Row]:
    """From the start of nnet3-train to its first minibatch: one minibatch, less what one takes."""
    make(NETWORKS[0], setting.folder)
    best = []
    for count in (1, 3):
        egs = f"{count}.egs"
        timed(
            ours("nnet3-subset-egs", f"--n={count}", "ark:tdnn.egs", f"ark:{egs}"), setting.folder
        )
        words = ["nnet3-train", "--use-gpu=no", "tdnn.raw", f"ark:{egs}", "start.out"]
        if setting.before:
            yield setting.beside_reference(f"nnet3-train tdnn, {count} minibatches", words, 1.0)
            continue
        runs = [timed(ours(*words), setting.folder).user for _ in range(3 * setting.rounds)]
        best.append(min(runs))
    if setting.before:
        yield setting.beside_reference("nnet3-info tdnn", ["nnet3-info", "tdnn.raw"], 1.0)
        return
    one, three = best
    yield Row("nnet3-train tdnn, to its first minibatch", "", one - (three - one) / 2, None, 0.15)


def examples(setting: Setting) -> Iterator[Row]:
    """Programs for examples of all kinds; how many examples a trainer reads in a second."""
    make_many(setting.folder)
    for work, words in COMMANDS.items():
        yield setting.beside_reference(f"{words[0]}: {work}", words, 1.5, 0.15)
    make_speech(setting.folder)
    for work, words in SPEECH_COMMANDS.items():
        yield setting.beside_reference(f"{words[0]}: {work}", words, 1.5, 0.15)
    seconds = min(seconds_to_deliver(setting.folder) for _ in range(setting.rounds))
    work = "50,000 examples merged and read by a trainer that does nothing, elapsed"
    yield Row(work, "", seconds * 50_000 / NUM_EXAMPLES, None, 1.0)


PARTS: dict[str, Part] = {
    "train": training,
    "two-threads": training_on_two,
    "operators": operators,
    "kernels": compiling_kernels,
    "compute": computing,
    "chain": chain,
    "compile": compiling,
    "start": starting,
    "examples": examples,
}


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _checkout(before: str, folder: Path) -> Path:
    """The folder of another checkout; a commit is checked out below `folder`."""
    if Path(before).is_dir():
        return Path(before).resolve()
    clone = folder / "before"
    for command in (
        ["git", "clone", "-q", "--shared", str(ROOT), str(clone)],
        ["git", "-C", str(clone), "checkout", "-q", "--detach", before],
    ):
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            raise SystemExit(f"--before={before}: neither a folder nor a commit")
    return clone


def _write(rows: list[Row], about: dict[str, Any]) -> Path:
    """Write a run to a file of its own."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.datetime.now():%Y-%m-%d-%H%M%S}.json"
    found = [{**asdict(row), "missed": row.is_missed} for row in rows]
    path.write_text(json.dumps([{"about": about, "rows": found}], indent=1) + "\n")
    return path


def main() -> None:
    """Measure, print the table as the runs go, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kaldi", type=lambda text: Path(text).resolve(), help="its programs")
    parser.add_argument("--torch", default="", help="an interpreter with PyTorch")
    parser.add_argument("--onnxruntime", default="", help="an interpreter with onnxruntime")
    parser.add_argument("--before", default="", help="a checkout, or a commit")
    parser.add_argument("--slower", type=float, default=np.inf, help="the greatest ratio")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    names = [network.name for network in NETWORKS]
    parser.add_argument("--networks", nargs="+", choices=names, default=names)
    parser.add_argument("--dir", type=Path, help="where data is made and kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.dir or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        before = _checkout(options.before, Path(temporary)) if options.before else None
        for checkout in (ROOT, before or ROOT):
            compiling = [sys.executable, "-m", "compileall", "-q", str(checkout / "src")]
            subprocess.run(compiling, check=True)
        setting = Setting(
            folder, options.kaldi, options.torch, options.rounds, before, options.onnxruntime,
            options.networks, options.slower,
        )  # fmt: skip
        about = machine() | {
            "commit": _commit(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "kaldi": str(options.kaldi or ""),
            "before": options.before,
            "rounds": options.rounds,
        }
        rows: list[Row] = []
        print(f"{described(about)}\n\n{HEAD}", flush=True)
        for name in options.only:
            for row in PARTS[name](setting):
                rows.append(row)
                print(row.text(), flush=True)
    missed = [row.work for row in rows if row.is_missed]
    print(f"\n{len(missed)} of {len(rows)} targets missed: {', '.join(missed) or 'none'}")
    print(f"written to {_write(rows, about)}", file=sys.stderr)
    most = options.slower
    if slower := [row.work for row in rows if before and row.ours > most * (row.theirs or np.inf)]:
        raise SystemExit(f"slower than {most} of the time before: {', '.join(slower)}")


if __name__ == "__main__":
    main()
