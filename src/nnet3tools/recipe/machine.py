"""What this machine can take: how many workers, and which has which GPU."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from nnet3tools.errors import OptionError

__all__ = ["Machine", "this_machine"]

_BYTES_OF_WORKER = 1 << 30
"""Memory that a worker is reckoned to need at least."""


@dataclass(frozen=True)
class Machine:
    """So many workers; those that train have a GPU each, if there are any in `gpus`."""

    num_workers: int
    gpus: tuple[str, ...] = ()

    def worker_of(self, home: str) -> int:
        """The worker of a home: train.2 is the second one, diagnostics the last one."""
        name, _, number = home.partition(".")
        if not number.isdecimal():
            return self.num_workers - 1
        count = len(self.gpus) if self.gpus and name == "train" else self.num_workers
        return (int(number) - 1) % max(1, min(count, self.num_workers))

    def environment(self, worker: int) -> dict[str, str]:
        """What a worker finds in its environment besides."""
        if not self.gpus:
            return {}
        gpu = self.gpus[worker] if worker < len(self.gpus) else ""
        return {"CUDA_VISIBLE_DEVICES": gpu}


def this_machine(num_jobs: int, most_at_once: int, wants_gpu: bool) -> Machine:
    """At most `num_jobs` workers, if that is positive, and what processors, memory and GPUs allow.

    `most_at_once` jobs train at once; one worker more is for diagnostics.
    """
    if num_jobs < 0:
        raise OptionError(f"--num-jobs={num_jobs}: expected a positive number, or 0")
    gpus = _gpus() if wants_gpu else ()
    limit = min(_num_processors(), max(1, _free_memory() // _BYTES_OF_WORKER))
    if gpus:
        limit = max(limit, len(gpus) + 1)
    wanted = min(most_at_once, len(gpus) if gpus else most_at_once) + 1
    count = min(wanted, num_jobs or limit)
    return Machine(max(1, count), gpus)


def _num_processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _free_memory() -> int:
    """Bytes that programs may still take; much if the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return 1 << 40


def _gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return tuple(part for part in named.split(",") if part)
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    return tuple(str(i) for i, line in enumerate(listed.stdout.splitlines()) if "GPU" in line)
