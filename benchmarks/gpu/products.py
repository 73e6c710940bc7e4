"""Each matrix product of a minibatch of the five networks, timed by itself in each precision.

    python benchmarks/gpu/products.py [--networks tdnn ...] [--apart] [--on-paper]

A line for each shape (rows x columns x inner size, row-major; ' is a transposed operand, + adds to
the output): how often it occurs in a minibatch, GFLOP, microseconds by the cost model, and measured
as the code calls cuBLAS; in fp32 also by cublasLt, with the algorithm that the code's rule chooses
and with the fastest of the eight that cublasLt proposes. The last line of each network has the
milliseconds of all. A shape is timed in a CUDA graph of 20 such products. `--apart`: with a product
for each time offset of a TDNN layer. `--on-paper` needs no GPU and has the cost model's columns.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests")]

import cost_model  # noqa: E402
from ours import gpu_or_paper, recorded_products, seconds, set_math, synchronizer  # noqa: E402
from without import APART, MACHINE, switch_off  # noqa: E402

from networks import NETWORKS, BenchNetwork  # noqa: E402
from nnet3tools import tensor  # noqa: E402
from nnet3tools.cli.gpu import _MATH  # noqa: E402
from nnet3tools.tensor.addresses import address  # noqa: E402
from nnet3tools.tensor.cuda.cublas_lt import Algorithm, Rule, choose  # noqa: E402
from nnet3tools.tensor.cuda.device import get_device  # noqa: E402

_MINIBATCHES, _WARM_UP = 8, 16
"""Natural gradient updates its estimates in each of the first ones, and later in one of four."""
_IN_A_GRAPH, _ROUNDS = 20, 3


class Product(NamedTuple):
    """A product as `Cublas.bind` is asked for it, without addresses and factor."""

    dtype: np.dtype
    rows: int
    cols: int
    inner: int
    batch: int
    lda: int
    trans_a: bool
    stride_a: int
    ldb: int
    trans_b: bool
    stride_b: int
    ldc: int
    stride_c: int
    beta: float

    @classmethod
    def of(cls, args: Sequence[Any]) -> Product:
        """From the arguments of `Cublas.bind`."""
        values = [*args[:5], *args[6:9], *args[10:13], *args[14:16], args[17]]
        return cls(*values)

    @property
    def gigaflops(self) -> float:
        return 2e-9 * self.rows * self.cols * self.inner * self.batch

    @property
    def model_us(self) -> float:
        """By the cost model, with a node of a graph."""
        work = cost_model._product(self.dtype, self.rows, self.cols, self.inner, self.batch)
        return MACHINE.work_us(work) + MACHINE.node_us

    def __str__(self) -> str:
        text = f"{self.rows} x {self.cols} x {self.inner}" + "+" * (self.beta != 0.0)
        text += " A'" * self.trans_a + " B'" * self.trans_b
        return text + f", {self.batch} of them" * (self.batch > 1)

    def _sizes(self) -> list[int]:
        """Elements of A, B and C."""
        tall = self.inner if self.trans_a else self.rows, self.cols if self.trans_b else self.inner
        sizes = (tall[0] * self.lda, self.stride_a), (tall[1] * self.ldb, self.stride_b)
        both = (*sizes, (self.rows * self.ldc, self.stride_c))
        return [size + stride * (self.batch - 1) for size, stride in both]

    def bind(self, like: Any, rule: Rule | None = None) -> tuple[Callable[[], None], Any]:
        """A function that computes this product of ones, and the memory that it uses.

        `rule` chooses an algorithm of cublasLt; None: cuBLAS.
        """
        ends = np.cumsum([-(-size // 64) * 64 for size in self._sizes()])
        memory = tensor.empty((int(ends[-1]),), like=like, dtype=self.dtype)
        tensor.fill(memory, 1.0)
        a, b, c = (address(memory) + self.dtype.itemsize * int(at) for at in (0, *ends[:2]))
        run = get_device().gemm(
            *self[:5], a, *self[5:8], b, *self[8:11], c, *self[11:13], 1.0, self.beta, rule
        )
        return run, memory


def microseconds(product: Product, like: Any, rule: Rule | None = None) -> float:
    """The time of one, the best of some rounds."""
    run, memory = product.bind(like, rule)
    run()

    def work() -> None:
        for _ in range(_IN_A_GRAPH):
            run()

    replay = get_device().capture(work)
    replay()
    times = [seconds(lambda count: replay(), 1, synchronizer(like)) for _ in range(_ROUNDS)]
    memory  # noqa: B018 (the graph knows its address only)
    return min(times) / _IN_A_GRAPH * 1e6


def measured(product: Product, like: Any) -> list[float]:
    """Microseconds: in each precision, by cublasLt, and by the best algorithm of cublasLt."""
    found = list[float]()
    try:
        for math in _MATH:
            set_math(math, on_paper=False)
            found.append(microseconds(product, like))
    finally:
        set_math("fp32", on_paper=False)
    proposed = list[Algorithm]()

    def chosen(algorithms: Sequence[Algorithm]) -> Algorithm:
        proposed[:] = algorithms
        return choose(algorithms)

    ours = microseconds(product, like, chosen)
    each = [microseconds(product, like, itemgetter(i)) for i in range(len(proposed))]
    return [*found, ours, min(each, default=ours)]


def table(network: BenchNetwork, like: Any, on_paper: bool) -> None:
    """Print the lines of one network."""
    recorded = recorded_products(network, like, _MINIBATCHES, _WARM_UP)
    counts = Counter(Product.of(args) for args, _ in recorded)
    total: Any = 0.0
    for product, count in sorted(counts.items(), key=lambda item: -item[0].model_us * item[1]):
        figures = [product.gigaflops, product.model_us]
        figures += [] if on_paper else measured(product, like)
        often = count / _MINIBATCHES
        total = total + often * np.array([1.0, *figures])
        write(network.name, str(product), [often, *figures])
    number, gigaflops, *times = total
    write(network.name, "all, times in ms", [number, gigaflops, *(us / 1e3 for us in times)])


def write(network: str, product: str, figures: Sequence[float]) -> None:
    """Print one line."""
    print("| " + " | ".join([network, product, *(f"{x:.4g}" for x in figures)]) + " |", flush=True)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--apart", action="store_true", help="a product for each time offset")
    parser.add_argument("--on-paper", action="store_true")
    options = parser.parse_args()
    if options.apart:
        switch_off(APART)
    measured_in = () if options.on_paper else (*_MATH, "cublasLt", "its best")
    columns = "network", "product", "times", "GFLOP", "us: model", *measured_in
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", flush=True)
    with gpu_or_paper(options.on_paper) as like:
        for name in options.networks:
            table(NETWORKS[name](), like, options.on_paper)
    return 0


if __name__ == "__main__":
    sys.exit(main())
