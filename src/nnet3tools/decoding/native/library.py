"""The C files of this folder as a library of this process."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from nnet3tools.tensor.native.choice import are_native
from nnet3tools.tensor.native.library import load_library

__all__ = ["compiled_library", "decoding_library"]

_FILES = ("growing.h", "strings.h", "determinize.c", "search.c", "best_path.c")


def decoding_library() -> ctypes.CDLL | None:
    """The library; None if there is none, or NumPy's kernels have been chosen."""
    return compiled_library() if are_native() else None


@functools.cache
def compiled_library() -> ctypes.CDLL | None:
    """The library, whatever has been chosen; None if it cannot be made."""
    folder = Path(__file__).parent
    source = "\n".join((folder / name).read_text(encoding="utf-8") for name in _FILES)
    return load_library(source, "the decoder")
