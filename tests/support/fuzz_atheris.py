"""Inputs that coverage guides (atheris, libFuzzer): an offline mode of tests/fuzz/run.py.

atheris is not among the test tools: `pip install atheris`. It must watch the imports of nnet3tools,
so that run.py loads it first.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import atheris

from support.fuzz_corpus import in_corpus
from support.fuzz_readers import READERS
from support.fuzz_shrink import keep, shrunk
from support.fuzz_trial import attempt, guarded

__all__ = ["main"]

KEEP = Path(__file__).resolve().parents[1] / "known_issues"


def main(name: str, runs: str = "100000", folder: str = str(KEEP)) -> None:
    """Give a reader so many inputs, and file those that fail; ends the process."""
    reader, scratch = READERS[name], Path(tempfile.mkdtemp())
    known: set[str] = set()

    def one_input(data: bytes) -> None:
        failure = attempt(reader, data)
        if failure is not None and failure.signature not in known:
            known.add(failure.signature)
            small = shrunk(reader, data, failure.signature)
            path = keep(Path(folder), name, failure.signature, small)
            print(f"{failure.signature}\n{failure.detail}\nkept as {path}", flush=True)

    seeds = scratch / "seeds"
    seeds.mkdir()
    (scratch / "corpus").mkdir()
    with in_corpus(scratch / "corpus"), guarded():
        for sample in reader.samples:
            shutil.copy(sample, seeds)
        arguments = [f"-atheris_runs={runs}", "-rss_limit_mb=2000", "-timeout=120", str(seeds)]
        atheris.Setup([sys.argv[0], *arguments], one_input)
        atheris.Fuzz()
