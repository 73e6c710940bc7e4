"""Free memory of the machine's GPUs from NVML, which creates no CUDA contexts."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log

_EXCLUSIVE = (1, 3)
"""Compute modes that allow one process per device: exclusive thread, exclusive process."""
_GOOD_ENOUGH = 0.5
"""A device with at least this share of the best one's free part may be preferred to it."""


@dataclass(frozen=True)
class Gpu:
    """A GPU that CUDA shows this process, with its memory in bytes (`total` 0: unknown).

    `number` is CUDA's device number; `key` names the device in all processes: UUID or PCI bus id.
    """

    number: int
    key: str
    name: str = ""
    free: int = 0
    total: int = 0

    @property
    def free_part(self) -> float:
        """The free fraction of the memory; 0 if unknown."""
        return self.free / self.total if self.total > 0 else 0.0


def memory_text(free: int, total: int) -> str:
    """Kaldi's log text about free and used memory; `free` and `total` are in bytes."""
    mega = 1 << 20
    part = free / total if total else 0.0
    used = (total - free) // mega
    return f"free:{free // mega}M, used:{used}M, total:{total // mega}M, free/total:{part:g}"


def _any_is_exclusive(runtime: Any, count: int) -> bool:
    """Whether any of `count` GPUs (of cupy.cuda.runtime) allows one process only; opens no GPU."""
    modes = (runtime.getDeviceProperties(number)["computeMode"] for number in range(count))
    found = any(mode in _EXCLUSIVE for mode in modes)
    if found:
        log.log("CUDA setup operating under Compute Exclusive Mode.")
    return found


def survey(runtime: Any, count: int) -> list[Gpu]:
    """The GPUs 0 to count - 1 of `cupy.cuda.runtime`, with their memory if a choice needs it.

    With one GPU there is no choice, nor in exclusive mode, where GPUs are tried, as in Kaldi.
    """
    buses = [str(runtime.deviceGetPCIBusId(number)) for number in range(count)]
    choice = not _any_is_exclusive(runtime, count) and count > 1
    with _nvml(choice) as nvml:
        gpus = [_query(nvml, number, bus) for number, bus in enumerate(buses)]
    if choice:
        log.log(f"Selecting from {count} GPUs")
        for gpu in gpus:
            log.log(f"GPU({gpu.number}): {gpu.name}\t{memory_text(gpu.free, gpu.total)}")
        return gpus
    return [Gpu(gpu.number, gpu.key) for gpu in gpus]


def _query(nvml: Any, number: int, bus: str) -> Gpu:
    """GPU `number` with its memory; NVML finds it by its PCI bus id, as its numbers differ."""
    if nvml is not None:
        try:
            handle = nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            uuid, name = (
                _text(get(handle)) for get in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName)
            )
            return Gpu(number, uuid, name, int(memory.free), int(memory.total))
        except nvml.NVMLError as error:
            log.vlog(1, f"NVML says of GPU {number}: {error}")
    return Gpu(number, bus.replace(":", "-"))


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


@contextlib.contextmanager
def _nvml(missed: bool) -> Iterator[Any]:
    """Yield NVML's functions; None if NVML is missing, after a warning if `missed` is True."""
    try:
        import pynvml
    except ImportError:
        _log_problem("nvidia-ml-py is not installed", missed)
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _log_problem(f"NVML: {error}", missed)
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _log_problem(problem: str, missed: bool) -> None:
    text = f"{problem}: the GPU is chosen without looking at free memory"
    if missed:
        log.warning(text)
    else:
        log.vlog(2, text)


def tiers(gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """Groups of GPUs in order of preference; within a group the number of jobs decides.

    The first group has the GPUs with at least half the share of free memory of the best one. A GPU
    without jobs of this user is preferred in it, because memory of a new job may not show yet.
    """
    ordered = sorted(gpus, key=lambda gpu: -gpu.free_part)
    least = _GOOD_ENOUGH * ordered[0].free_part
    good = [gpu for gpu in ordered if gpu.free_part >= least]
    return [good, [gpu for gpu in ordered if gpu.free_part < least]]
