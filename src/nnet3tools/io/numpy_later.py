"""NumPy, loaded when something of it is first used.

Importing it takes 50 ms, half of the time of a program that copies a small file. The modules that
every program needs to read and write take it from here, so that what passes bytes on never loads
it: `from nnet3tools.io.numpy_later import np`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _NumpyLater:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)  # found without this detour from now on
            return value

    np = _NumpyLater()
