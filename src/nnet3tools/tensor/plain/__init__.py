"""The NumPy backend: importing it registers the implementations in all of its modules."""

import importlib
import os

for _file in sorted(os.listdir(__path__[0])):  # pkgutil, which lists modules, takes 0.6 ms
    if _file.endswith(".py") and _file != "__init__.py":
        importlib.import_module(f"{__name__}.{_file.removesuffix('.py')}")
