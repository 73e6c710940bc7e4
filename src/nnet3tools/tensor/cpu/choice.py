"""The choice of the CPU's kernels: compiled kernels, or NumPy alone."""

from __future__ import annotations

import enum
import os

from nnet3tools.errors import OptionError

_VARIABLE = "NNET3TOOLS_CPU_KERNELS"


class CpuKernels(enum.Enum):
    """What does the work on a CPU: compiled C kernels where there are any, or NumPy alone."""

    NATIVE = "native"
    NUMPY = "numpy"


_chosen: CpuKernels | None = None


def choose(kind: str) -> None:
    """Set what does the CPU work of this process, "native" or "numpy"; OptionError for others."""
    global _chosen
    try:
        _chosen = CpuKernels(kind)
    except ValueError:
        known = "|".join(k.value for k in CpuKernels)
        raise OptionError(f"--cpu-kernels={kind}: expected {known}") from None


def are_native() -> bool:
    """Whether to use compiled kernels: by `choose`, else by NNET3TOOLS_CPU_KERNELS, else yes."""
    if _chosen is None:
        choose(os.environ.get(_VARIABLE) or CpuKernels.NATIVE.value)
    return _chosen is CpuKernels.NATIVE
