"""The CuPy backend: importing it registers the implementations in all of its modules.

The one that needs CuPy itself, `cuda`, is imported when something is to run on a GPU.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    if _module.name != "cuda":
        importlib.import_module(f"{__name__}.{_module.name}")
