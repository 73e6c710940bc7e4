"""The programs there are: each is `main` in the module of its name.

The modules are `nnet3_*.py` here and all of data/.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["PROGRAMS", "module_of"]

_HERE = Path(__file__).parent
_MODULES = {
    path.stem.replace("_", "-"): ".".join(path.relative_to(_HERE).with_suffix("").parts)
    for pattern in ("nnet3_*.py", "data/[!_]*.py")
    for path in _HERE.glob(pattern)
}

PROGRAMS = tuple(sorted(_MODULES))


def module_of(program: str) -> str:
    """The module whose `main` a program is."""
    return f"nnet3tools.cli.{_MODULES[program]}"
