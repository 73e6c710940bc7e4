"""The capacity of this machine: the number of workers, and the GPU of each."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from nnet3tools.errors import OptionError
from nnet3tools.tensor.cpu.compiler import num_processors

_BYTES_OF_WORKER = 1 << 30
"""The memory that a worker is assumed to need."""


@dataclass(frozen=True)
class Machine:
    """How many worker processes there are, and the GPUs, one for each training worker."""

    num_workers: int
    gpus: tuple[str, ...] = ()

    def worker_of(self, home: str) -> int:
        """The number of the worker for a home; train.2 has the second, diagnostics the last."""
        name, _, number = home.partition(".")
        if not number.isdecimal():
            return self.num_workers - 1
        count = len(self.gpus) if self.gpus and name == "train" else self.num_workers
        return (int(number) - 1) % max(1, min(count, self.num_workers))

    def environment(self, worker: int) -> dict[str, str]:
        """The environment variables to add for worker number `worker`."""
        if not self.gpus:
            return {}
        gpu = self.gpus[worker] if worker < len(self.gpus) else ""
        return {"CUDA_VISIBLE_DEVICES": gpu}


def this_machine(num_jobs: int, most_training: int, wants_gpu: bool) -> Machine:
    """As many workers as processors, memory, GPUs and, if positive, `num_jobs` allow.

    `most_training` jobs train at once; one more worker is for diagnostics.
    """
    if num_jobs < 0:
        raise OptionError(f"--num-jobs={num_jobs}: expected a positive number, or 0")
    gpus = _gpus() if wants_gpu else ()
    limit = min(num_processors(), max(1, _free_memory() // _BYTES_OF_WORKER))
    if gpus:
        limit = max(limit, len(gpus) + 1)
    wanted = min(most_training, len(gpus) if gpus else most_training) + 1
    count = min(wanted, num_jobs or limit)
    return Machine(max(1, count), gpus)


def _free_memory() -> int:
    """Bytes of memory that programs can allocate; a large number if the system does not say."""
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
