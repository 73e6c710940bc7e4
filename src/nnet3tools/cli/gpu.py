"""Choice of the device and of the precision of its products: --use-gpu and --gpu-math."""

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
)
from nnet3tools.cli.gpu_locks import claims
from nnet3tools.cli.gpu_survey import Gpu, memory_text, survey, tiers
from nnet3tools.errors import OptionError, UserError
from nnet3tools.io import log
from nnet3tools.options import option

_CHOICES = ("yes", "no", "optional", "wait")


_MATH = ("fp32", "tf32", "fp16", "bf16")
_PAUSES = {"yes": 20, "optional": 2, "wait": 5}
"""Seconds before the next try, as in Kaldi: "wait" tries again forever, the others once."""
_LEAST_BYTES = 128 << 20
"""Free memory below which a GPU is not tried; the libraries alone need more."""


class MathIfPossible(str):
    """A value of --gpu-math for which GPUs that lack this precision take fp32."""


def cpu_kernels_option() -> str | None:
    """The dataclass field, typed like its default, of the option --cpu-kernels: native or numpy."""
    return option(
        None,
        "How a CPU computes: native|numpy. Native kernels are made by the machine's C compiler at "
        "their first use and kept; where there is none, or with numpy, NumPy does the work.",
        shown="native",
    )


def choose_cpu_kernels(cpu_kernels: str | None) -> None:
    """Select the CPU kernels if the option was given; OptionError if its value is unknown."""
    if cpu_kernels is not None:
        from nnet3tools.tensor.cpu.choice import choose  # imported late because it imports NumPy

        choose(cpu_kernels)


def choose_device(
    use_gpu: str | None, gpu_math: str = "fp32", cpu_kernels: str | None = None
) -> Any:
    """Choose the device; returns an empty array on it, for use as a template (`like`).

    If the user gave `yes` or `wait`, a GPU is required (else UserError); if all are in use, `yes`
    tries again after 20 seconds, `wait` until one is free. `optional` falls back to the CPU with a
    warning. None, a program's default, tries like `yes` and then falls back.
    `gpu_math` is the precision of float32 products on a GPU: fp32, tf32, fp16 or bf16.
    `cpu_kernels` is native, numpy or None (not given).
    """
    choose_cpu_kernels(cpu_kernels)
    falls_back = use_gpu in (None, "optional")
    use_gpu = use_gpu if use_gpu is not None else "yes"
    if use_gpu not in _CHOICES:
        raise OptionError(f"--use-gpu={use_gpu}: expected {'|'.join(_CHOICES)}")
    if gpu_math not in _MATH:
        raise OptionError(f"--gpu-math={gpu_math}: expected {'|'.join(_MATH)}")
    if use_gpu == "no":
        return _host()
    try:
        array = _open_when_free(use_gpu)
    except NoGpuError as error:
        if falls_back:
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
        if not isinstance(gpu_math, MathIfPossible):
            raise
        log.warning(f"{error}; products are done in fp32")


def _host() -> Any:
    import numpy as np  # imported late because --help does not need it

    return np.empty(0, np.float32)


def _open_when_free(use_gpu: str) -> Any:
    """An empty array on a newly opened GPU; waits as `use_gpu` allows.

    NoGpuError if no GPU becomes free.
    """
    waited, pause = 0, _PAUSES[use_gpu]
    while True:
        try:
            array = _open_gpu()
        except NoGpuError as error:
            if not error.in_use or (waited and use_gpu != "wait"):
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
    """An empty array on the most suitable GPU, which is opened; NoGpuError if there is none."""
    if importlib.util.find_spec("cupy") is None:
        raise not_installed()
    try:
        import cupy

        count = check_driver(cupy.cuda.runtime)
        gpus = survey(cupy.cuda.runtime, count)
    except Exception as error:  # CuPy passes on any error of the driver
        raise not_usable(error) from None
    return _open_best(cupy, gpus)


def _open_best(cupy: Any, gpus: Sequence[Gpu]) -> Any:
    """An empty array on a usable GPU, with much free memory and few jobs; or NoGpuError."""
    faults = []
    for tier in tiers(gpus):
        for index, lock in claims([gpu.key for gpu in tier]):
            number = tier[index].number
            try:
                return _open_device(cupy, number)
            except Exception as error:  # for example an exclusive device of another process
                lock.release()
                faults.append(not_usable(error))
                log.vlog(1, f"GPU {number} cannot be used: {faults[-1]}")
    raise next((fault for fault in faults if fault.in_use), faults[0])


def _open_device(cupy: Any, number: int) -> Any:
    """An empty array on GPU `number`, with a new CUDA context; NoGpuError if memory is short."""
    runtime = cupy.cuda.runtime
    cupy.cuda.Device(number).use()
    free = runtime.memGetInfo()[0]
    if free < _LEAST_BYTES:
        release_context(number)
        raise NoGpuError(
            f"GPU {number} is out of memory: {free >> 20} MB are free",
            "--use-gpu=wait waits until there is more",
            in_use=True,
        )
    array = cupy.empty(0, cupy.float32)
    _load_libraries()
    found = runtime.getDeviceProperties(number)
    log.log(
        f"The active GPU is [{number}]: {found['name'].decode()}\t"
        f"{memory_text(*runtime.memGetInfo())} version {found['major']}.{found['minor']}"
    )
    return array


def _load_libraries() -> None:
    """Load cuBLAS and NVRTC now, because they may be missing even if CuPy is installed."""
    import cupy

    from nnet3tools.tensor.cuda.device import get_device

    cupy.cuda.nvrtc.getVersion()
    get_device()
