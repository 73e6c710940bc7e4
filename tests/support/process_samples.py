"""What a running process holds, every few seconds: memory, descriptors, threads, files."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Held:
    """What a process held at one moment."""

    seconds: float
    """Since the first look."""
    resident: float
    """Resident memory in MB."""
    anonymous: float
    """The part of it in MB that is no file: heap and stacks."""
    descriptors: int
    threads: int
    files: int
    """Files under the watched folders."""


def held(pid: int, folders: Sequence[Path], began: float) -> Held:
    """What process `pid` holds now; `began` is the time.monotonic() of the first look."""
    status = Path(f"/proc/{pid}/status").read_text()
    numbers = dict(re.findall(r"^(\w+):\s+(\d+)", status, re.MULTILINE))
    return Held(
        time.monotonic() - began,
        int(numbers["VmRSS"]) / 1024,
        int(numbers["RssAnon"]) / 1024,
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        int(numbers["Threads"]),
        sum(1 for folder in folders for path in folder.rglob("*") if path.is_file()),
    )


def watch(
    pid: int, folders: Sequence[Path], seconds: float, ended: Callable[[], bool]
) -> list[Held]:
    """What process `pid` held every few `seconds`, until `ended()`."""
    began, samples = time.monotonic(), []
    while not ended():
        try:
            samples.append(held(pid, folders, began))
        except (OSError, KeyError):  # it has ended meanwhile
            break
        time.sleep(seconds)
    return samples


def table(samples: Sequence[Held]) -> str:
    """The samples at the start and after 10, 50 and 100 % of the time, one line each."""
    last = samples[-1].seconds
    lines = ["      " + "".join(f"{field.name:>13}" for field in fields(Held))]
    for percent in (0, 10, 50, 100):
        one = next(sample for sample in samples if sample.seconds >= last * percent / 100)
        lines.append(f"{percent:4d} %" + "".join(f"{value:13.6g}" for value in astuple(one)))
    return "\n".join(lines)
