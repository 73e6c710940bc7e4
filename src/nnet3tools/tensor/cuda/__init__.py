"""The CuPy backend: importing it registers the implementations in all of its modules.

Those that need CuPy itself, `cuda` and `cublas`, are imported when something is to run on a GPU.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    if _module.name not in ("cublas", "cuda"):
        importlib.import_module(f"{__name__}.{_module.name}")
