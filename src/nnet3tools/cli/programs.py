"""The list of programs; most are `main` in the module of their name.

The modules are `nnet3_*.py` in this folder, all modules in chain/, data/, decoding/,
discriminative/ and lang/, and recipe/programs/. Twelve programs for tables of examples are
functions of egs_programs.py. setup.py runs this file by itself.
"""

import importlib
import os
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _modules(folder: str, prefix: str = "") -> dict[str, str]:
    """A table from program to module, for a folder of cli/.

    pathlib is not used because its import takes 5 ms.
    """
    names = [part for part in folder.split("/") if part]
    package = ".".join(["nnet3tools", *(names[1:] if names[:1] == [".."] else ["cli", *names])])
    files = os.listdir(os.path.join(_HERE, folder))
    names = [n[:-3] for n in files if n.endswith(".py") and n.startswith(prefix) and n[0] != "_"]
    return {name.replace("_", "-"): f"{package}.{name}" for name in names}


_FOLDERS = ("chain", "data", "decoding", "discriminative", "lang")

_MODULES = _modules("", "nnet3_")
for _folder in _FOLDERS:
    _MODULES |= _modules(_folder)
_MODULES |= _modules("../recipe/programs", "nnet3_")

_EGS_PROGRAMS = [
    f"{kind}-{action}-egs"
    for kind in ("nnet3", "nnet3-chain", "nnet3-discriminative")
    for action in ("copy", "merge", "shuffle", "subset")
]

PROGRAMS = tuple(sorted([*_MODULES, *_EGS_PROGRAMS]))


def entry_point_of(program: str) -> tuple[str, str]:
    """The module and the function name of a program."""
    if program in _EGS_PROGRAMS:
        return "nnet3tools.cli.egs_programs", program.replace("-", "_")
    return _MODULES[program], "main"


def main_of(program: str) -> Any:
    """The function that runs a program; imports its module."""
    module, name = entry_point_of(program)
    return getattr(importlib.import_module(module), name)
