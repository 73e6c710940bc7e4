#!/usr/bin/env python3
"""Mutated files for every reader, any number of them: see support/fuzz_run.py, or --help."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(tests), str(tests.parent / "src")]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from support.fuzz_run import main

    sys.exit(main())
