"""The programs, modules `nnet3_*.py` and `data/*.py` of cli/, as entry points.

The rest is in pyproject.toml.
"""

from pathlib import Path

from setuptools import setup

CLI = Path(__file__).parent / "src" / "nnet3tools" / "cli"
MODULES = sorted(
    [*CLI.glob("nnet3_*.py"), *CLI.glob("data/[!_]*.py")],
    key=lambda path: path.stem.replace("_", "-"),
)

setup(
    entry_points={
        "console_scripts": [
            f"{path.stem.replace('_', '-')} = nnet3tools.cli."
            f"{'.'.join(path.relative_to(CLI).with_suffix('').parts)}:main"
            for path in MODULES
        ]
    }
)
