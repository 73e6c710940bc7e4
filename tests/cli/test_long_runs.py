"""In long runs memory, descriptors, threads and files of a program stay as they are.

NNET3TOOLS_LONG_RUNS is the length of each: 1 (if it is not set) takes a minute or two. Training of
10^6 minibatches, and an hour of nnet3-serve, are 50: `NNET3TOOLS_LONG_RUNS=50 tests/run.sh --slow
-s tests/cli/test_long_runs.py` takes three hours of an idle core and prints a table for each run.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.chain.example import CHAIN_EXAMPLE
from nnet3tools.fst.files import save_fst
from nnet3tools.io.holders import MATRIX
from nnet3tools.nnet.model_file import write_nnet
from nnet3tools.training.example import EXAMPLE
from support import api_networks, chain_helpers
from support.process_samples import Samples, growth, held, table, watch
from support.programs import write_table
from support.tiny_recognizer import write_recognizer
from support.training_helpers import example, minibatch, network

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at /proc"),
]
LENGTH = int(os.environ.get("NNET3TOOLS_LONG_RUNS", "1"))
AGAIN = "ark:for i in $(seq %d); do cat records; done |"
"""A table of the file `records` many times over."""
RECORDS = 1000


def minibatches() -> None:
    """Minibatches of two shapes, and a network with natural gradient, dropout and batch norm."""
    write_nnet(api_networks.network(api_networks.CONFIG.replace("dim=4", "dim=5")), "raw")
    both = [minibatch(size, seed=seed) for seed in range(10) for size in (4, 8)]
    write_table("ark:records", {f"m{i}": both[i % 20] for i in range(RECORDS)}, EXAMPLE)


def shapes() -> None:
    """Minibatches of twelve shapes, for a cache of eight."""
    write_nnet(network(), "raw")
    each = [example(num_frames) for num_frames in range(1, 13)]
    write_table("ark:records", {f"m{i}": each[i % 12] for i in range(RECORDS)}, EXAMPLE)


def chain_minibatches() -> None:
    write_nnet(chain_helpers.network(), "raw")
    save_fst("den.fst", chain_helpers.DEN)
    one = chain_helpers.chain_example("plain")
    write_table("ark:records", {f"m{i}": one for i in range(RECORDS)}, CHAIN_EXAMPLE)


def utterances() -> None:
    """Utterances of 300 lengths, which are 300 programs."""
    write_nnet(network(), "raw")
    rows = np.zeros((300, 3), np.float32)
    write_table("ark:records", {f"u{i}": rows[: 1 + i % 300] for i in range(RECORDS)}, MATRIX)


RUNS = {
    "nnet3-train": (minibatches, 20, "nnet3-train", "--use-gpu=no", "raw", AGAIN, "out"),
    "a full cache": (
        shapes, 2, "nnet3-train", "--use-gpu=no", "--compiler.cache-capacity=8", "raw", AGAIN,
        "out",
    ),
    "nnet3-chain-train": (
        chain_minibatches, 6, "nnet3-chain-train", "--use-gpu=no", "raw", "den.fst", AGAIN, "out",
    ),
    "nnet3-copy-egs": (minibatches, 100, "nnet3-copy-egs", AGAIN, "ark:/dev/null"),
    "nnet3-shuffle-egs": (
        minibatches, 100, "nnet3-shuffle-egs", "--buffer-size=500", AGAIN, "ark:/dev/null",
    ),
    "nnet3-merge-egs": (
        minibatches, 100, "nnet3-merge-egs", "--minibatch-size=4", AGAIN, "ark:/dev/null",
    ),
    "nnet3-compute": (
        utterances, 40, "nnet3-compute", "--use-gpu=no", "raw", AGAIN, "ark:/dev/null",
    ),
}  # fmt: skip
"""Preparation, thousands of records at length 1, and the command."""


def assert_flat(samples: Samples, megabytes: float = 2.0) -> None:
    print(f"\n{table(samples)}")
    assert len(samples) > 20
    grown = growth(samples)
    assert grown.pop("resident") <= megabytes
    assert grown.pop("anonymous") <= megabytes
    assert not any(more > 0 for more in grown.values()), grown


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders for temporary files and compiled kernels of a program; its working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NNET3TOOLS_CPU_KERNELS")
    for name, variable in (("temporary", "TMPDIR"), ("cache", "NNET3TOOLS_CACHE")):
        Path(name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    return [tmp_path / "temporary", tmp_path / "cache"]


@pytest.mark.parametrize("name", RUNS)
def test_a_program_holds_no_more_after_many_records(name: str, folders: list[Path]) -> None:
    prepare, thousands, *words = RUNS[name]
    prepare()
    words = [word % (thousands * LENGTH) if word == AGAIN else word for word in words]
    command = [sys.executable, "-m", "nnet3tools.cli", *words]
    with open("log", "wb") as log, subprocess.Popen(command, stderr=log) as process:
        samples = watch(process.pid, folders, 0.02, lambda: process.poll() is not None)
    assert process.returncode == 0, Path("log").read_text()[-2000:]
    assert len(Path("log").read_bytes()) < 1 << 20
    assert_flat(samples)


async def _stream(url: str, piece: bytes, is_cut: bool) -> None:
    """One connection: three pieces of sound and the end of the file; or it is cut off before."""
    from websockets.asyncio.client import connect

    client = await connect(url, compression=None)
    await client.send(json.dumps({"config": {"sample_rate": 16000}}))
    for _ in range(3):
        await client.send(piece)
        await client.recv()
    if is_cut:
        client.transport.abort()
        return
    await client.send('{"eof" : 1}')
    await client.recv()
    await client.close()


async def _served(seconds: float, folders: list[Path]) -> Samples:
    """What nnet3-serve held while streams were opened, used, closed and cut off."""
    command = ["-m", "nnet3tools.cli", "nnet3-serve", "--port=0", "--lattice-beam=0.3", "model"]
    with open("log", "wb") as log:
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=log)
    while not (found := re.search(r"Listening on (ws://\S+)", Path("log").read_text())):
        assert process.returncode is None, Path("log").read_text()
        await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    began, samples, number = loop.time(), [], 0
    piece = np.random.default_rng(1).normal(0, 2000, 3200).astype("<i2").tobytes()
    while loop.time() < began + seconds:
        await asyncio.gather(*(_stream(found[1], piece, i % 3 == 0) for i in range(10)))
        number += 10
        await asyncio.sleep(0.2)
        samples.append(held(process.pid, folders, began))
    print(f"\n{number} connections")
    process.terminate()
    assert await process.wait() == 0
    assert "Traceback" not in Path("log").read_text()
    return samples


def test_a_server_holds_no_more_after_many_streams(folders: list[Path]) -> None:
    pytest.importorskip("websockets", reason="the extra [server] is not installed")
    write_recognizer(Path("model"))
    assert_flat(asyncio.run(_served(72.0 * LENGTH, folders)), megabytes=4.0)
