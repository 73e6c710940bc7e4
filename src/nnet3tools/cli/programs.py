"""The programs there are: each is `main` in the module `nnet3_*.py` of its name."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PROGRAMS", "module_of"]

PROGRAMS = tuple(
    sorted(path.stem.replace("_", "-") for path in Path(__file__).parent.glob("nnet3_*.py"))
)


def module_of(program: str) -> str:
    """The module whose `main` a program is."""
    return "nnet3tools.cli." + program.replace("-", "_")
