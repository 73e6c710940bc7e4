"""--use-gpu and --gpu-math: which device a program computes on, and how exactly."""

from __future__ import annotations

import importlib
import importlib.util
import time
from typing import Any

from nnet3tools.cli.option_specs import option
from nnet3tools.errors import OptionError, UserError
from nnet3tools.io import log

__all__ = ["choose_device", "gpu_math_option", "use_gpu_option"]

_CHOICES = ("yes", "no", "optional", "wait")


_MATH = ("fp32", "tf32", "fp16", "bf16")
_TAKEN = ("busy", "unavailable", "out of memory", "outofmemory")
"""Words of CUDA's errors about a device that another process has."""
_WAIT_SECONDS = 5


class _NotGiven(str):
    """A default that can be told from the same text on the command line."""


def use_gpu_option(default: str) -> str:
    """The field `use_gpu: str = use_gpu_option("yes")`, with Kaldi's default for the program."""
    return option(_NotGiven(default), "yes|no|optional|wait, only has effect if there is a GPU")


def gpu_math_option() -> str:
    """The field `gpu_math: str = gpu_math_option()` of every program that computes."""
    return option(
        "fp32",
        "How matrix products are done on a GPU: fp32|tf32|fp16|bf16 (stored and summed in single "
        "precision all the same; fp16 with loss scaling in training)",
    )


def choose_device(use_gpu: str, gpu_math: str = "fp32") -> Any:
    """An empty array on the chosen device, to be passed as `like`.

    `yes` and `wait`, if they were asked for, need a usable GPU (else UserError); `wait` waits while
    all are taken; `optional`, and a program's own default, fall back to the CPU with a warning.
    `gpu_math` says how float32 products are done there: fp32, tf32, fp16 or bf16.
    """
    if use_gpu not in _CHOICES:
        raise OptionError(f"--use-gpu={use_gpu}: expected {'|'.join(_CHOICES)}")
    if gpu_math not in _MATH:
        raise OptionError(f"--gpu-math={gpu_math}: expected {'|'.join(_MATH)}")
    if use_gpu == "no":
        return _host()
    problem, array = _try_gpu()
    waited = 0
    while use_gpu == "wait" and any(word in problem.lower() for word in _TAKEN):
        if waited % 60 == 0:
            log.log(f"waiting for a GPU ({problem})")
        time.sleep(_WAIT_SECONDS)
        waited += _WAIT_SECONDS
        problem, array = _try_gpu()
    if not problem:
        if gpu_math != "fp32":
            importlib.import_module("nnet3tools.tensor.cupy_backend.cuda").set_math_mode(gpu_math)
        return array
    if use_gpu == "optional" or isinstance(use_gpu, _NotGiven):
        log.warning(f"no usable GPU ({problem}); computing on the CPU")
        return _host()
    raise UserError(f"--use-gpu={use_gpu}: no usable GPU ({problem})")


def _host() -> Any:
    import numpy as np  # late: `--help` has no need of it

    return np.empty(0, np.float32)


def _try_gpu() -> tuple[str, Any]:
    """The GPU's fault ("" if there is none), and an empty array on the one chosen."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed", None
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
        if count == 0:
            return "CUDA sees no device", None
        problems = []
        for number in _by_free_memory(cupy, count):
            try:
                cupy.cuda.Device(number).use()
                array = cupy.empty(0, cupy.float32)
                _load_libraries()
                return "", array
            except Exception as error:  # an exclusive device that another process has
                problems.append(_one_line(error))
        return problems[0], None
    except Exception as error:  # CuPy raises what its driver gives it
        return _one_line(error), None


def _load_libraries() -> None:
    """Have cuBLAS and NVRTC loaded now, as they may be missing where CuPy itself is not."""
    import cupy

    from nnet3tools.tensor.cupy_backend.device import get_device

    cupy.cuda.nvrtc.getVersion()
    get_device()


def _by_free_memory(cupy: Any, count: int) -> list[int]:
    """Devices, the one with the largest part of its memory free first (as Kaldi chooses)."""
    if count == 1:
        return [0]
    free = []
    for number in range(count):
        try:
            with cupy.cuda.Device(number):
                available, total = cupy.cuda.runtime.memGetInfo()
            free.append(available / total)
        except Exception:  # taken by somebody else: tried last
            free.append(-1.0)
    return sorted(range(count), key=lambda number: -free[number])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
