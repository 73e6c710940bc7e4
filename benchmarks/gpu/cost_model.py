"""What a minibatch should cost on a GPU that nobody has at hand: nodes, bytes, operations, host.

    python benchmarks/gpu/cost_model.py [--networks tdnn ...] [--node-us 2.2] [--tflops 50] ...

Trains on a device on paper (tests/support/paper_device.py), which takes down what would be
launched, and adds up: each node of a graph costs some time whatever it does; a product costs its
operations, or its bytes, at the rates that are given; any other operator the bytes of its operands,
each read or written once. Work in few blocks gets the share of the device that these can use. Nodes
are taken to run one after the other. The host's time is measured (host_time.py); a minibatch takes
the larger of the two, as the host runs ahead.

The defaults are those of an H100 (SXM): 2.2 us a node, 50 of 67 TFLOP/s in fp32, 2.8 of 3.35 TB/s.
What is not modelled: caches (bytes that stay in the 50 MB of L2 cost less), threads that wait for
memory (kernels that read little, but one after the other, cost more), branches of a graph that run
side by side.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests")]

from host_time import host_time  # noqa: E402
from ours import Ours  # noqa: E402

from networks import NETWORKS, BenchNetwork  # noqa: E402
from nnet3tools.tensor.cuda.fused_level import FusedLevel  # noqa: E402
from nnet3tools.tensor.cuda.launches import Launch as Launch_  # noqa: E402
from nnet3tools.tensor.cuda.launches import state  # noqa: E402
from support import emulated_cuda  # noqa: E402
from support.paper_device import Launch, PaperDevice, paper_device  # noqa: E402

_TILE = 64
"""Rows and columns of a product that one block does, for small ones."""
_SPLIT = 512
"""Inner elements of a product that a block does at least."""
_END = Launch("mark", args=(0,))
_SWEEPS = 6
"""Of the Jacobi method in natural gradient's update: 4 to 8."""


@dataclass(frozen=True)
class Machine:
    """A GPU's rates."""

    processors: int
    node_us: float
    """From the end of one node of a graph to the end of the next, which does nothing."""
    tflops: float
    terabytes: float
    """A second."""
    block_gigabytes: float
    """A second, that one processor can move."""
    barrier_us: float
    element_ns: float
    """Time of one thread for an element of a rotation in shared memory."""

    def work_us(self, work: Work) -> float:
        """The time of one node beside what each costs."""
        if work.rank:
            return self._eigenvalues_us(work.rank, work.threads)
        busy = min(1.0, work.blocks / self.processors)
        flops = work.flops / (self.tflops * 1e6 * busy)
        moved = min(self.terabytes * 1e6, work.blocks * self.block_gigabytes * 1e3)
        return max(flops, work.num_bytes / moved)

    def _eigenvalues_us(self, rank: int, threads: int) -> float:
        """Rounds, each up to a barrier, in which all of a square array is turned twice."""
        elements = 2 * rank * rank / threads
        return _SWEEPS * (rank / 2 - 1) * (self.barrier_us + elements * self.element_ns / 1e3)


@dataclass(frozen=True)
class Work:
    """One node: what it does."""

    kind: str
    """"product", "update" (of natural gradient's estimates) or "other"."""
    num_bytes: float = 0.0
    flops: float = 0.0
    blocks: int = 1
    rank: int = 0
    """Of a matrix whose eigenvalues are found, or 0."""
    threads: int = 1


@dataclass(frozen=True)
class Cost:
    """Of one network: means over minibatches, and the most nodes of one."""

    nodes: int
    update_nodes: int
    products: float
    gigaflops: float
    megabytes: float
    node_ms: float
    product_ms: float
    other_ms: float
    update_ms: float

    @property
    def total_ms(self) -> float:
        """On the device."""
        return self.node_ms + self.product_ms + self.other_ms + self.update_ms


@contextmanager
def _noted_bytes(device: PaperDevice) -> Iterator[None]:
    """In the `with` block kernels and fused levels leave a mark with their bytes before them."""
    launch, bound = Launch_.__call__, FusedLevel.bound

    def mark(*launches: Any) -> None:
        num_bytes = sum(launch.num_bytes for launch in launches)
        device._do(lambda: device._note(Launch("mark", args=(num_bytes,))))

    def marked_launch(self: Any) -> None:
        if state.collected is None:
            mark(self)
        launch(self)

    def marked_level(self: Any) -> Any:
        run = bound(self)

        def marked() -> None:
            mark(*self.launches)
            run()

        return marked

    Launch_.__call__ = marked_launch  # type: ignore[method-assign]
    FusedLevel.bound = marked_level  # type: ignore[method-assign]
    try:
        yield
    finally:
        Launch_.__call__, FusedLevel.bound = launch, bound  # type: ignore[method-assign]


def recorded(network: BenchNetwork, machine: Machine, minibatches: int) -> list[list[Work]]:
    """What each of so many minibatches does, after as many that record and capture."""
    with paper_device(machine.processors) as device, _noted_bytes(device):
        like = emulated_cuda.to_device(np.zeros(0, np.float32))
        variant = Ours(network, like, replay=True, natural_gradient=True)
        variant.run(minibatches)
        found = []
        for _ in range(minibatches):
            device.log.clear()
            variant.run(1)
            found.append(list(_works(device.log)))
        return found


def _works(log: Sequence[Launch]) -> Iterator[Work]:
    """Nodes of a log, operator by operator."""
    num_bytes, launches = 0, list[Launch]()
    for launch in [*log, _END]:
        if launch.name != "mark":
            launches.append(launch)
            continue
        yield from _operator(launches, num_bytes)
        num_bytes, launches = launch.args[0], []


def _operator(launches: Sequence[Launch], num_bytes: float) -> Iterator[Work]:
    """Nodes of one operator; its operands are charged to the kernel with most blocks.

    Beside products there are only kernels for their factors.
    """
    blocks = [max(1, int(np.prod(launch.grid))) for launch in launches]
    has_product = any(launch.name == "gemm" for launch in launches)
    main = -1 if has_product or not blocks else blocks.index(max(blocks))
    for i, launch in enumerate(launches):
        if launch.name == "gemm":
            yield _product(*launch.args[:5])
        elif found := re.match(r"fisher_step_(\d+)", launch.name):
            yield Work("update", rank=int(found[1]), threads=int(np.prod(launch.block)))
        else:
            yield Work("other", num_bytes if i == main else 0.0, blocks=blocks[i])


def _product(dtype: np.dtype, rows: int, cols: int, inner: int, batch: int) -> Work:
    sizes = rows * inner + inner * cols + 2 * rows * cols
    tiles = -(-rows // _TILE) * -(-cols // _TILE) * max(1, inner // _SPLIT)
    flops = 2.0 * rows * cols * inner * batch
    return Work("product", sizes * batch * dtype.itemsize, flops, tiles * batch)


def cost(found: list[list[Work]], machine: Machine) -> Cost:
    """Mean cost of a minibatch."""
    count = len(found)
    times = {"product": 0.0, "other": 0.0, "update": 0.0}
    for works in found:
        for work in works:
            times[work.kind] += machine.work_us(work) / 1e3 / count
    every = [work for works in found for work in works]
    updating = [len(works) for works in found if any(work.kind == "update" for work in works)]
    plain = [len(works) for works in found if not any(work.kind == "update" for work in works)]
    return Cost(
        nodes=max(plain, default=0),
        update_nodes=max(updating, default=0),
        products=sum(work.kind == "product" for work in every) / count,
        gigaflops=sum(work.flops for work in every) / count / 1e9,
        megabytes=sum(work.num_bytes for work in every) / count / 1e6,
        node_ms=len(every) / count * machine.node_us / 1e3,
        product_ms=times["product"],
        other_ms=times["other"],
        update_ms=times["update"],
    )


_COLUMNS = (
    "network", "nodes", "with update", "products", "GFLOP", "MB", "ms: nodes", "products",
    "other work", "eigenvalues", "device", "host", "frames/s",
)  # fmt: skip


def row(network: BenchNetwork, found: Cost, host_ms: float) -> str:
    """One line of the table."""
    step = max(found.total_ms, host_ms)
    frames = network.minibatch * network.frames / step * 1e3
    cells = [
        network.name, str(found.nodes), str(found.update_nodes), f"{found.products:.0f}",
        f"{found.gigaflops:.1f}", f"{found.megabytes:.0f}", f"{found.node_ms:.2f}",
        f"{found.product_ms:.2f}", f"{found.other_ms:.2f}", f"{found.update_ms:.2f}",
        f"{found.total_ms:.2f}", f"{host_ms:.2f}", f"{frames:,.0f}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--minibatches", type=int, default=40)
    parser.add_argument("--processors", type=int, default=132)
    parser.add_argument("--node-us", type=float, default=2.2)
    parser.add_argument("--tflops", type=float, default=50.0, help="about 300 for TF32")
    parser.add_argument("--terabytes", type=float, default=2.8)
    parser.add_argument("--block-gigabytes", type=float, default=60.0)
    parser.add_argument("--barrier-us", type=float, default=0.4)
    parser.add_argument("--element-ns", type=float, default=30.0)
    given = vars(parser.parse_args())
    names, minibatches = given.pop("networks"), given.pop("minibatches")
    machine = Machine(**given)
    print("| " + " | ".join(_COLUMNS) + " |\n" + "|---" * len(_COLUMNS) + "|", flush=True)
    for name in names:
        network = NETWORKS[name]()
        found = cost(recorded(network, machine, minibatches), machine)
        print(row(network, found, host_time(network)[0]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
