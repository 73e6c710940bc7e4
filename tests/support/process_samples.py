"""What a running process holds, every few seconds: memory, descriptors, threads, files."""

import contextlib
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


Samples = list[Held]


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


def watch(pid: int, folders: Sequence[Path], seconds: float, ended: Callable[[], bool]) -> Samples:
    """What process `pid` held every `seconds` until `ended()`."""
    began, samples = time.monotonic(), []
    while not ended():
        with contextlib.suppress(OSError, KeyError):  # it is just ending
            samples.append(held(pid, folders, began))
        time.sleep(seconds)
    return samples


def growth(samples: Samples) -> dict[str, float]:
    """How much more of each kind was held at most in the second half than from 10 % to 50 %."""
    rows = [astuple(sample)[1:] for sample in samples]
    before, after = rows[len(rows) // 10 : len(rows) // 2], rows[len(rows) // 2 :]
    names = [field.name for field in fields(Held)][1:]
    most = zip(*(map(max, zip(*part, strict=True)) for part in (before, after)), strict=True)
    return {name: late - early for name, (early, late) in zip(names, most, strict=True)}


def table(samples: Samples) -> str:
    """The samples at the start and after 10, 50 and 100 % of the time, one line each."""
    last = samples[-1].seconds
    lines = ["      " + "".join(f"{field.name:>13}" for field in fields(Held))]
    for percent in (0, 10, 50, 100):
        one = next(sample for sample in samples if sample.seconds >= last * percent / 100)
        lines.append(f"{percent:4d} %" + "".join(f"{value:13.6g}" for value in astuple(one)))
    return "\n".join(lines)
