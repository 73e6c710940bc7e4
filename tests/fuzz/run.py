#!/usr/bin/env python3
"""Mutated files for every reader, any number of them: see support/fuzz_run.py, or --help.

tests/fuzz/run.py --inputs 1000000 --jobs 2
tests/fuzz/run.py --atheris 'model in binary' 100000     # coverage-guided; pip install atheris
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(tests), str(tests.parent / "src")]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if sys.argv[1:2] == ["--atheris"]:
        import atheris

        with atheris.instrument_imports(include=["nnet3tools"]):
            from support import fuzz_atheris
        fuzz_atheris.main(*sys.argv[2:])
    from support.fuzz_run import main

    sys.exit(main())
