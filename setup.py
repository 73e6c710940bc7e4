"""The programs, modules `nnet3_*.py` of cli/, as entry points; the rest is in pyproject.toml."""

from pathlib import Path

from setuptools import setup

CLI = Path(__file__).parent / "src" / "nnet3tools" / "cli"

setup(
    entry_points={
        "console_scripts": [
            f"{path.stem.replace('_', '-')} = nnet3tools.cli.{path.stem}:main"
            for path in sorted(CLI.glob("nnet3_*.py"))
        ]
    }
)
