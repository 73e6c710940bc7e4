"""Descriptions of problems with a machine's GPUs, each one line with a remedy."""

import ctypes
import os
from typing import Any

from nnet3tools.errors import UserError, install_command

_TAKEN = ("busy", "unavailable", "out of memory", "outofmemory", "memoryallocation")
"""Words in CUDA's errors about a device that another process uses."""
_MISSING = ("ImportError", "ModuleNotFoundError", "OSError", "DynamicLibNotFoundError")
"""Names of exceptions for shared libraries that cannot be loaded."""
_OR_CPU = "or --use-gpu=no"


class NoGpuError(UserError):
    """No GPU can be used; the message has the problem and a remedy."""

    def __init__(self, problem: str, remedy: str, in_use: bool = False) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.in_use = in_use
        """Whether there is a GPU, but other processes use it."""


def not_installed() -> NoGpuError:
    """The NoGpuError for a missing CuPy."""
    return NoGpuError(
        "CuPy is not installed", f"{install_command('cuda12')} (or cuda13), {_OR_CPU}"
    )


def check_driver(runtime: Any) -> int:
    """The number of GPUs of `cupy.cuda.runtime`, 1 or more; NoGpuError for no GPU or driver."""
    driver, needed = int(runtime.driverGetVersion()), int(runtime.runtimeGetVersion())
    if driver == 0:
        container = "in a container pass the GPU on (docker --gpus all, apptainer --nv)"
        raise NoGpuError(
            "there is no NVIDIA driver",
            f"install it, so that nvidia-smi works, {container}, {_OR_CPU}",
        )
    if driver // 1000 < needed // 1000:
        raise NoGpuError(
            f"CuPy is made for CUDA {needed // 1000} and the driver for CUDA {driver // 1000}."
            f"{driver % 1000 // 10}",
            f"update the driver, or replace cupy-cuda{needed // 1000}x: pip uninstall it, "
            f"{install_command(f'cuda{driver // 1000}')}",
        )
    try:
        count = int(runtime.getDeviceCount())
    except Exception as error:
        if "NoDevice" not in str(error):
            raise
        count = 0
    if count == 0:
        raise _no_device()
    return count


def _no_device() -> NoGpuError:
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return NoGpuError(
            "CUDA sees no device",
            f"see whether nvidia-smi -L lists one that this job was given, {_OR_CPU}",
        )
    return NoGpuError(
        f"CUDA sees no device (CUDA_VISIBLE_DEVICES='{visible}')",
        f"set it to a number or UUID of nvidia-smi -L, {_OR_CPU}",
    )


def not_usable(error: Exception) -> NoGpuError:
    """The NoGpuError for an exception of CuPy, a driver or a shared library."""
    if isinstance(error, NoGpuError):
        return error
    text = " ".join(str(error).split()) or type(error).__name__
    name = type(error).__name__
    if "limit set to" in text:  # CuPy's message
        return NoGpuError(text.rstrip("."), "raise or unset CUPY_GPU_MEMORY_LIMIT")
    if any(word in (text + name).lower() for word in _TAKEN):
        return NoGpuError(text, "--use-gpu=wait waits until one is free", in_use=True)
    if name in _MISSING:
        return NoGpuError(
            text,
            f"a library of CUDA cannot be loaded: {install_command('cuda12')} or cuda13, "
            "whichever CuPy is made for (docs/gpu.md)",
        )
    return NoGpuError(text, "docs/gpu.md says what to look at")


def release_context(number: int) -> None:
    """Reset this process's CUDA context on GPU `number`; no CuPy objects may be on this GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), ctypes.c_int(number)) == 0:
        cuda.cuDevicePrimaryCtxReset_v2(device)
