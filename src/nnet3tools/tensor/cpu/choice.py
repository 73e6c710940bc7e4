"""Which kernels the CPU computes with: compiled ones, or NumPy's calls."""

from __future__ import annotations

import enum
import os

from nnet3tools.errors import OptionError

__all__ = ["CpuKernels", "are_native", "choose", "chosen"]

_VARIABLE = "NNET3TOOLS_CPU_KERNELS"


class CpuKernels(enum.Enum):
    """The kinds of kernels."""

    NATIVE = "native"
    NUMPY = "numpy"


_chosen: CpuKernels | None = None


def choose(kind: str) -> None:
    """Use this kind from now on, for what is bound after this."""
    global _chosen
    try:
        _chosen = CpuKernels(kind)
    except ValueError:
        known = "|".join(k.value for k in CpuKernels)
        raise OptionError(f"--cpu-kernels={kind}: expected {known}") from None


def chosen() -> CpuKernels:
    """The kind in use: what was chosen, else what the environment says, else compiled ones."""
    if _chosen is None:
        choose(os.environ.get(_VARIABLE) or CpuKernels.NATIVE.value)
    assert _chosen is not None
    return _chosen


def are_native() -> bool:
    """Whether recorded calls become compiled kernels in this process."""
    return chosen() is CpuKernels.NATIVE
