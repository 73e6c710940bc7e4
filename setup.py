"""The programs, as src/nnet3tools/cli/programs.py finds them, as entry points.

The rest is in pyproject.toml.
"""

import runpy
from pathlib import Path

from setuptools import setup

FOUND = runpy.run_path(str(Path(__file__).parent / "src/nnet3tools/cli/programs.py"))

setup(
    entry_points={
        "console_scripts": [
            f"{p} = {':'.join(FOUND['entry_point_of'](p))}" for p in FOUND["PROGRAMS"]
        ]
    }
)
