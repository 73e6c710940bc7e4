"""--use-gpu and --gpu-math: which device a program computes on, and how exactly."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Sequence
from typing import Any

from nnet3tools.cli.gpu_faults import (
    NoGpuError,
    check_driver,
    not_installed,
    not_usable,
    release_context,
    without_memory,
)
from nnet3tools.cli.gpu_locks import claims
from nnet3tools.cli.gpu_survey import Gpu, memory_text, survey, tiers
from nnet3tools.errors import OptionError, UserError
from nnet3tools.io import log
from nnet3tools.options import option

__all__ = [
    "choose_cpu_kernels",
    "choose_device",
    "cpu_kernels_option",
    "gpu_math_option",
    "math_if_possible",
    "use_gpu_option",
]

_CHOICES = ("yes", "no", "optional", "wait")


_MATH = ("fp32", "tf32", "fp16", "bf16")
_PAUSES = {"yes": 20, "optional": 2, "wait": 5}
"""Seconds, Kaldi's: "wait" tries again for ever, the others once."""
_LEAST_BYTES = 128 << 20
"""Free memory that is worth a try: less than that the libraries take for themselves."""


class _NotGiven(str):
    """A default that can be told from the same text on the command line."""


class _IfPossible(str):
    """A --gpu-math that a device which is too old for it may pass over."""


def math_if_possible(gpu_math: str) -> str:
    """For `choose_device`: products are done so, or as fp32 on a device which is too old."""
    return _IfPossible(gpu_math)


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


def cpu_kernels_option() -> str:
    """The field `cpu_kernels: str = cpu_kernels_option()` of every program that computes."""
    return option(
        _NotGiven("native"),
        "How a CPU computes: native|numpy. Native kernels are made by the machine's C compiler at "
        "their first use and kept; where there is none, or with numpy, NumPy does the work.",
    )


def choose_cpu_kernels(cpu_kernels: str) -> None:
    """Compute with these on a CPU, if they were asked for; OptionError for none that there is."""
    if not isinstance(cpu_kernels, _NotGiven):
        from nnet3tools.tensor.cpu.choice import choose  # late: it loads NumPy

        choose(cpu_kernels)


def choose_device(
    use_gpu: str, gpu_math: str = "fp32", cpu_kernels: str = _NotGiven("native")
) -> Any:
    """An empty array on the chosen device, to be passed as `like`.

    `yes` and `wait`, if they were asked for, need a usable GPU (else UserError): where all are
    taken, `yes` tries again after 20 seconds and `wait` until one is free. `optional`, and a
    program's own default, fall back to the CPU with a warning. `gpu_math` says how float32 products
    are done there: fp32, tf32, fp16 or bf16; `cpu_kernels` what a CPU computes with.
    """
    choose_cpu_kernels(cpu_kernels)
    if use_gpu not in _CHOICES:
        raise OptionError(f"--use-gpu={use_gpu}: expected {'|'.join(_CHOICES)}")
    if gpu_math not in _MATH:
        raise OptionError(f"--gpu-math={gpu_math}: expected {'|'.join(_MATH)}")
    if use_gpu == "no":
        return _host()
    try:
        array = _patiently(use_gpu)
    except NoGpuError as error:
        if use_gpu == "optional" or isinstance(use_gpu, _NotGiven):
            log.warning(f"no usable GPU ({error}); computing on the CPU")
            return _host()
        raise UserError(f"--use-gpu={use_gpu}: no usable GPU ({error})") from None
    if gpu_math != "fp32":
        _set_math_mode(gpu_math)
    return array


def _set_math_mode(gpu_math: str) -> None:
    cublas = importlib.import_module("nnet3tools.tensor.cuda.cublas")
    try:
        cublas.set_math_mode(gpu_math)
    except OptionError as error:
        if not isinstance(gpu_math, _IfPossible):
            raise
        log.warning(f"{error}; products are done in fp32")


def _host() -> Any:
    import numpy as np  # late: `--help` has no need of it

    return np.empty(0, np.float32)


def _patiently(use_gpu: str) -> Any:
    """An empty array on a GPU; NoGpuError if there is none, or none to be had in time."""
    waited, pause = 0, _PAUSES[use_gpu]
    while True:
        try:
            array = _open_gpu()
        except NoGpuError as error:
            if not error.taken or (waited and use_gpu != "wait"):
                raise
            if not waited:
                often = f"indefinitely every {pause}" if use_gpu == "wait" else f"after {pause}"
                log.warning(f"{error}. Will try again {often} seconds to get a GPU.")
        else:
            if waited:
                log.warning(f"Waited {waited} seconds before creating CUDA context")
            return array
        time.sleep(pause)
        waited += pause


def _open_gpu() -> Any:
    """An empty array on the GPU that suits best now, or NoGpuError."""
    if importlib.util.find_spec("cupy") is None:
        raise not_installed()
    try:
        import cupy

        count = check_driver(cupy.cuda.runtime)
        gpus = survey(cupy.cuda.runtime, count)
    except Exception as error:  # CuPy raises what its driver gives it
        raise not_usable(error) from None
    return _open_best(cupy, gpus)


def _open_best(cupy: Any, gpus: Sequence[Gpu]) -> Any:
    """The first that can be used of those with most memory and fewest jobs of ours."""
    faults = []
    for tier in tiers(gpus):
        for index, lock in claims([gpu.key for gpu in tier]):
            number = tier[index].number
            try:
                return _opened(cupy, number)
            except Exception as error:  # an exclusive device that another process has
                lock.release()
                faults.append(not_usable(error))
                log.vlog(1, f"GPU {number} cannot be used: {faults[-1]}")
    raise next((fault for fault in faults if fault.taken), faults[0])


def _opened(cupy: Any, number: int) -> Any:
    """An empty array on a device, with which this process has a context from here on."""
    runtime = cupy.cuda.runtime
    cupy.cuda.Device(number).use()
    free = runtime.memGetInfo()[0]
    if free < _LEAST_BYTES:
        release_context(number)
        raise without_memory(number, free)
    array = cupy.empty(0, cupy.float32)
    _load_libraries()
    found = runtime.getDeviceProperties(number)
    log.log(
        f"The active GPU is [{number}]: {found['name'].decode()}\t"
        f"{memory_text(*runtime.memGetInfo())} version {found['major']}.{found['minor']}"
    )
    return array


def _load_libraries() -> None:
    """Have cuBLAS and NVRTC loaded now, as they may be missing where CuPy itself is not."""
    import cupy

    from nnet3tools.tensor.cuda.device import get_device

    cupy.cuda.nvrtc.getVersion()
    get_device()
