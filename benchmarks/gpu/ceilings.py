"""What a GPU can do at most: bytes copied, matrix products in each precision, NCCL's sums.

    python benchmarks/gpu/ceilings.py [--only copies products nccl] [--on-paper]

A copy counts the bytes that it reads and those that it writes. Products are those of square
matrices. NCCL sums over one rank, in place: what a sum costs beside its transfer. Each line is the
best of three rounds. `--on-paper` needs no GPU; its figures are the host's time and mean nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests")]

from ours import gpu_or_paper, product_rate, seconds, set_math, synchronizer  # noqa: E402

from nnet3tools import tensor  # noqa: E402
from nnet3tools.cli.gpu import _MATH  # noqa: E402
from nnet3tools.errors import UserError  # noqa: E402
from nnet3tools.io import log  # noqa: E402

_ROUNDS, _REPEATS = 3, 20
_SIZE = 8192
"""Rows and columns of products."""
_COPIED = (1 << 20, 16 << 20, 1 << 30)
"""Bytes; the first two stay in the cache."""
_SUMMED = (9_000_000, 80_000_000)
"""Bytes: the parameters of tdnnf and of large-tdnnf."""


def best_seconds(run: Callable[[], object], like: Any) -> float:
    """The time of one of many runs, the best of three rounds."""

    def repeat(count: int) -> None:
        for _ in range(count):
            run()

    run()
    return min(seconds(repeat, _REPEATS, synchronizer(like)) for _ in range(_ROUNDS))


def copies(like: Any, on_paper: bool) -> Iterator[str]:
    """A line for each size."""
    for size in _COPIED:
        source, out = (tensor.empty((size // 4,), like=like, dtype=np.float32) for _ in range(2))
        tensor.fill(source, 1.0)
        took = best_seconds(tensor.copy.bind(out, source), like)
        yield f"copy of {size / 2**20:.0f} MB | {2e-12 * size / took:.3f} TB/s"


def products(like: Any, on_paper: bool) -> Iterator[str]:
    """A line for each precision."""
    try:
        for math in _MATH:
            set_math(math, on_paper)
            rate = max(product_rate(like, _SIZE) for _ in range(_ROUNDS))
            yield f"product of {_SIZE} x {_SIZE}, {math} | {rate / 1e12:.1f} TFLOP/s"
    finally:
        set_math("fp32", on_paper)


def nccl(like: Any, on_paper: bool) -> Iterator[str]:
    """A line for each size; UserError if NCCL is missing or changes the array."""
    from nnet3tools.tensor.cuda.nccl import Nccl, new_id

    group = Nccl(new_id(), 0, 1)
    for size in _SUMMED:
        array = tensor.empty((size // 4,), like=like, dtype=np.float32)
        tensor.fill(array, 1.5)
        took = best_seconds(partial(group.sum, array), like)
        if not on_paper and not (array.get() == 1.5).all():
            raise UserError("NCCL's sum over one rank is not what it was given")
        yield f"sum over one rank of {size / 1e6:.0f} MB | {took * 1e3:.3f} ms"


_PARTS = {"copies": copies, "products": products, "nccl": nccl}


def main() -> int:
    """The exit status: 1 if NCCL is missing or wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(_PARTS), choices=list(_PARTS))
    parser.add_argument("--on-paper", action="store_true")
    options = parser.parse_args()
    print("| what | at most |\n|---|---|", flush=True)
    with gpu_or_paper(options.on_paper) as like:
        for part in options.only:
            try:
                for line in _PARTS[part](like, options.on_paper):
                    print(f"| {line} |", flush=True)
            except UserError as error:
                log.error_line(str(error))
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
