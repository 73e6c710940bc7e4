"""The CPU's compiled kernels: operators beside PyTorch's, and how long making and loading takes."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator

from processes import ROOT, environment_of, ours, timed
from rows import Row, Setting
from train import NETWORKS, make

TARGETS = {"chain": 0.4, "log_softmax": 0.5, "batch_norm": 0.8, "lstm": 0.3}
"""Operator of tensor_ops.py -> ours over PyTorch's."""
COMPILED, LOADED = 500.0, 10.0
"""Milliseconds, elapsed, for the kernels of a program; two files of them are made at once."""


def operators(setting: Setting) -> Iterator[Row]:
    """tensor_ops.py in the interpreter that has PyTorch."""
    if not setting.torch:
        return
    script = str(ROOT / "benchmarks" / "tensor_ops.py")
    command = [setting.torch, script, "--threads", "1", "--rounds", str(10 + 5 * setting.rounds)]
    environment = {**environment_of(1), "PYTHONPATH": str(ROOT / "src")}
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    for line in said.stdout.splitlines():
        found = dict(re.findall(r"(ours|torch) +([0-9.]+)", line.partition("ms:")[2]))
        name = line.split()[0]
        took = [float(found[side]) for side in ("ours", "torch")]
        yield Row(f"operator {name}, ms", "PyTorch", took[0], took[1], TARGETS[name], unit="ms")


def compiling_kernels(setting: Setting) -> Iterator[Row]:
    """Milliseconds for the slowest file of kernels in nnet3-train's log: compiled, then loaded."""
    for network in NETWORKS:
        make(network, setting.folder)
        name = network.name
        data = f"{name}.raw", f"ark:{name}.egs", f"{name}.out"
        words = ours("nnet3-train", "--use-gpu=no", "--verbose=2", *data)
        with tempfile.TemporaryDirectory() as cache:
            for how, limit in (("compiled", COMPILED), ("loaded", LOADED)):
                timed(words, setting.folder, NNET3TOOLS_CACHE=f"{cache}/kernels")
                log = (setting.folder / "log").read_text()
                took = re.findall(rf"{how} [0-9]+ kernels in ([0-9.]+) s", log)
                if took:
                    longest = 1000 * max(map(float, took))
                    yield Row(f"kernels of {name} {how}, ms", "", longest, None, limit, unit="ms")
