"""The list of programs; each is `main` in the module of its name.

The modules are `nnet3_*.py` in this folder, all modules in chain/, data/, decoding/,
discriminative/ and lang/, and recipe/programs/. setup.py runs this file by itself.
"""

from __future__ import annotations

import os

__all__ = ["PROGRAMS", "module_of"]

_HERE = os.path.dirname(os.path.abspath(__file__))


def _modules(folder: str, prefix: str = "") -> dict[str, str]:
    """Program -> module in a folder; without pathlib, whose import takes 5 ms."""
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

PROGRAMS = tuple(sorted(_MODULES))


def module_of(program: str) -> str:
    """The module that contains a program's `main`."""
    return _MODULES[program]
