"""Give mutated files to every reader, and say what fails.

    tests/fuzz/run.py --inputs 1000000 --jobs 2                   # spread over all readers
    tests/fuzz/run.py --inputs 5000 --readers 'tree,topology'     # some of them (glob patterns)
    tests/fuzz/run.py --readers tree --only 4711                  # one input, with its traceback

Every fault found is shrunk and kept in tests/known_issues (which pytest runs), one file a fault.
Inputs follow from seed, reader and number alone. Work is done in forked processes, so that one that
dies or hangs costs its input only.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from support.fuzz_corpus import in_corpus
from support.fuzz_readers import READERS
from support.fuzz_shrink import keep, shrunk
from support.fuzz_trial import Failure, attempt, guarded, mutation
from support.fuzz_worker import Slice, Worker

__all__ = ["main"]

TESTS = Path(__file__).resolve().parents[1]
SLICE = 500
"""Inputs to one forked process."""


@dataclass
class Row:
    """What one reader did."""

    inputs: int = 0
    failures: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)


def main() -> int:
    """Run; 0 if nothing failed."""
    options = _options()
    names = [name for name in READERS if _chosen(name, options.readers)]
    scratch = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    rows = {name: Row() for name in names}
    (scratch / "corpus").mkdir()
    try:
        with in_corpus(scratch / "corpus"), guarded():
            if options.only is not None:
                return _one(names[0], options.only, options.seed)
            _spread(options, names, scratch, rows)
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return _report(rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=20_000, help="in all")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", default="*", help="names or glob patterns, comma-separated")
    parser.add_argument("--only", type=int, help="one input, by its number")
    parser.add_argument("--log", help="a JSON line for each finished slice goes here")
    parser.add_argument("--keep", default=str(TESTS / "known_issues"), help="where faults go")
    return parser.parse_args()


def _chosen(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns.split(","))


def _one(name: str, index: int, seed: int) -> int:
    data = mutation(name, index, seed)
    failure = attempt(READERS[name], data)
    print(f"{name}, input {index} of seed {seed}, {len(data)} bytes: {data[:2000]!r}")
    print(f"{failure.signature}\n{failure.detail}" if failure else "passed")
    return int(failure is not None)


def _spread(
    options: argparse.Namespace, names: list[str], scratch: Path, rows: dict[str, Row]
) -> None:
    waiting = _slices(names, options.inputs, options.seed)
    workers = [Worker(scratch, number) for number in range(max(1, options.jobs))]
    known: set[str] = set()
    began = reported = time.monotonic()
    while waiting or any(worker.busy for worker in workers):
        for worker in workers:
            if not worker.busy and waiting:
                worker.start(waiting.pop())
            done = worker.finished(0.5)
            if done is None:
                continue
            waiting += done.rest
            _add(rows[done.reader], done.inputs, done.seconds, done.failures)
            for index, failure in done.failures:
                where = f"{done.reader}: {failure.signature}"
                if where not in known:
                    known.add(where)
                    _keep(options, done.reader, index, failure, worker)
            if options.log:
                with open(options.log, "a") as file:
                    file.write(json.dumps(done.summary()) + "\n")
        if time.monotonic() - reported > 60:
            reported = time.monotonic()
            total = sum(row.inputs for row in rows.values())
            print(f"{total} inputs, {len(known)} faults, {reported - began:.0f} s", flush=True)


def _slices(names: list[str], inputs: int, seed: int) -> list[Slice]:
    """All inputs, cut up so that every reader gets its share early and late."""
    total = sum(READERS[name].share for name in names)
    slices = []
    for name in names:
        count = max(1, round(inputs * READERS[name].share / total))
        for start in range(0, count, SLICE):
            place = (start + SLICE) / (count + SLICE)
            slices.append((place, Slice(name, seed, start, min(start + SLICE, count))))
    slices.sort(key=lambda item: item[0], reverse=True)
    return [piece for _, piece in slices]


def _add(row: Row, inputs: int, seconds: float, failures: list[tuple[int, Failure]]) -> None:
    row.inputs += inputs
    row.seconds += seconds
    row.failures += len(failures)
    row.faults.update(failure.signature for _, failure in failures)


def _keep(
    options: argparse.Namespace, name: str, index: int, failure: Failure, worker: Worker
) -> None:
    """Show a new fault, and file the smallest input that has it."""
    print(f"\n{name}, input {index}: {failure.signature}\n{failure.detail}", flush=True)
    data = mutation(name, index, options.seed)
    small = worker.apart(lambda: shrunk(READERS[name], data, failure.signature), data)
    path = keep(Path(options.keep), name, failure.signature, small)
    print(f"kept as {path}: {small[:200]!r}", flush=True)


def _report(rows: dict[str, Row]) -> int:
    print("| reader | inputs | failures | CPU s |\n|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row.inputs} | {row.failures} | {row.seconds:.0f} |")
        for signature, count in row.faults.most_common():
            print(f"|   {signature} | | {count} | |")
    failures = sum(row.failures for row in rows.values())
    print(f"| all | {sum(row.inputs for row in rows.values())} | {failures} | |")
    return int(failures > 0)
