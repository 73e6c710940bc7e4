"""The machine that a table was measured on: ratios depend on its processor."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import Any

from processes import environment_of

_PRODUCT = """
import time, numpy as np
a, b = np.random.default_rng(0).standard_normal((2, 1024, 1024)).astype(np.float32)
out, least = np.empty_like(a), 1e9
for _ in range(20):
    began = time.perf_counter()
    np.matmul(a, b, out=out)
    least = min(least, time.perf_counter() - began)
print(2 * 1024**3 / least / 1e9)
"""


def gflops() -> float:
    """Billions of operations in a second of a float32 product of 1024 cubed on one thread."""
    done = subprocess.run(
        [sys.executable, "-c", _PRODUCT], env=environment_of(1), capture_output=True, check=True
    )
    return float(done.stdout)


def machine() -> dict[str, Any]:
    """Facts of the processor and the load, for the file of a run and the head of its table."""
    found: dict[str, str] = {}
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = (line.partition(":") for line in file.read().split("\n\n")[0].splitlines())
        found = {name.strip(): value.strip() for name, _, value in lines}
    return {
        "processor": found.get("model name") or platform.processor() or platform.machine(),
        "family": found.get("cpu family", ""),
        "model": found.get("model", ""),
        "cores": os.cpu_count(),
        "gflops": round(gflops(), 1),
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def described(about: dict[str, Any]) -> str:
    """The facts of `machine` as one line of text."""
    return (
        f"{about['processor']} (family {about['family']}, model {about['model']}), "
        f"{about['cores']} cores, a product of 1024 cubed at {about['gflops']} GFLOP/s, "
        f"load {about['load'][0]}"
    )
