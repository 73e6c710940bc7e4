"""What the GPUs of a machine have free, without leaving a context on any: NVML says it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nnet3tools.io import log

__all__ = ["Gpu", "memory_text", "survey", "tiers"]

_EXCLUSIVE = (1, 3)
"""Compute modes in which one process may have a device: exclusive thread, exclusive process."""
_GOOD_ENOUGH = 0.5
"""Of the best device's free part: one with as much is as good, if fewer jobs of ours are there."""


@dataclass(frozen=True)
class Gpu:
    """A device that CUDA shows to this process."""

    number: int
    """CUDA's."""
    key: str
    """What names it in all processes: its UUID, or its place on the bus."""
    name: str = ""
    free: int = 0
    """Bytes."""
    total: int = 0
    """Bytes; 0: not known."""

    @property
    def free_part(self) -> float:
        """Of its memory; 0 where nothing is known."""
        return self.free / self.total if self.total > 0 else 0.0


def memory_text(free: int, total: int) -> str:
    """As Kaldi's logs have it."""
    mega = 1 << 20
    part = free / total if total else 0.0
    used = (total - free) // mega
    return f"free:{free // mega}M, used:{used}M, total:{total // mega}M, free/total:{part:g}"


def _any_is_exclusive(runtime: Any, count: int) -> bool:
    """Whether a device takes one process only; asking makes no context."""
    modes = (runtime.getDeviceProperties(number)["computeMode"] for number in range(count))
    found = any(mode in _EXCLUSIVE for mode in modes)
    if found:
        log.log("CUDA setup operating under Compute Exclusive Mode.")
    return found


def survey(runtime: Any, count: int) -> list[Gpu]:
    """The devices 0 to count - 1 of `cupy.cuda.runtime`; with their memory if that matters.

    It does not where there is one device, nor, as in Kaldi, in exclusive mode: there those that
    nobody has are found by trying.
    """
    buses = [str(runtime.deviceGetPCIBusId(number)) for number in range(count)]
    choice = not _any_is_exclusive(runtime, count) and count > 1
    with _nvml(choice) as nvml:
        gpus = [_asked(nvml, number, bus) for number, bus in enumerate(buses)]
    if choice:
        log.log(f"Selecting from {count} GPUs")
        for gpu in gpus:
            log.log(f"GPU({gpu.number}): {gpu.name}\t{memory_text(gpu.free, gpu.total)}")
        return gpus
    return [Gpu(gpu.number, gpu.key) for gpu in gpus]


def _asked(nvml: Any, number: int, bus: str) -> Gpu:
    """One device by its place on the bus, as CUDA's and NVML's numbers differ."""
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
    """NVML's functions, or None where there are none, with a warning if they will be missed."""
    try:
        import pynvml
    except ImportError:
        _tell("nvidia-ml-py is not installed", missed)
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _tell(f"NVML: {error}", missed)
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _tell(problem: str, missed: bool) -> None:
    text = f"{problem}: the GPU is chosen without looking at free memory"
    if missed:
        log.warning(text)
    else:
        log.vlog(2, text)


def tiers(gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """Those among which the jobs there decide, then the others, by the free part of their memory.

    A device whose memory is half as free as the best one's is rather shared with nobody than the
    best one with a job of ours, whose memory may not show yet.
    """
    ordered = sorted(gpus, key=lambda gpu: -gpu.free_part)
    least = _GOOD_ENOUGH * ordered[0].free_part
    good = [gpu for gpu in ordered if gpu.free_part >= least]
    return [good, [gpu for gpu in ordered if gpu.free_part < least]]
