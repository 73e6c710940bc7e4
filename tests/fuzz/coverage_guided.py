#!/usr/bin/env python3
"""Inputs for one reader that coverage guides (atheris, libFuzzer); `pip install atheris` first.

    tests/fuzz/coverage_guided.py 'model in binary' -atheris_runs=100000

The names of readers are in support/fuzz_readers.py. What fails is left as a file crash-*.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(tests), str(tests.parent / "src")]
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

    import atheris

    with atheris.instrument_imports(include=["nnet3tools"]):
        from support.fuzz_corpus import in_corpus
        from support.fuzz_readers import READERS
        from support.fuzz_trial import attempt, guarded

    reader, here, scratch = READERS[sys.argv[1]], Path.cwd(), Path(tempfile.mkdtemp())
    for folder in ("seeds", "corpus"):
        (scratch / folder).mkdir()

    def one_input(data: bytes) -> None:
        failure = attempt(reader, data)
        assert failure is None, f"{failure.signature}\n{failure.detail}"

    with in_corpus(scratch / "corpus"), guarded():
        for sample in reader.samples:
            shutil.copy(sample, scratch / "seeds")
        options = ["-rss_limit_mb=2000", "-timeout=120", f"-artifact_prefix={here}/"]
        atheris.Setup([sys.argv[0], *options, *sys.argv[2:], str(scratch / "seeds")], one_input)
        atheris.Fuzz()
