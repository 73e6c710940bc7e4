"""The C files of this folder as a library of this process."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.library import load_files

__all__ = ["compiled_library", "decoding_library"]

_FILES = ("strings.h", "determinize.c", "search.c", "best_path.c")


def decoding_library() -> ctypes.CDLL | None:
    """The library; None if there is none, or NumPy's kernels have been chosen."""
    return compiled_library() if are_native() else None


@functools.cache
def compiled_library() -> ctypes.CDLL | None:
    """The library, whatever has been chosen; None if it cannot be made."""
    return load_files(Path(__file__).parent, _FILES, "the decoder")
