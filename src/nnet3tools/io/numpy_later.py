"""NumPy, imported at its first use.

The import takes 50 ms, half of the time of a program that copies a small file. Modules that every
program imports use `from nnet3tools.io.numpy_later import np`, so that a program that only copies
bytes never imports NumPy.
"""

from typing import TYPE_CHECKING, Any

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
