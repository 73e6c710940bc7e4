"""Upper bounds on the kernels, products and copies of a minibatch of each benchmark network.

Each of them costs a GPU about 2 us, whatever it computes.
`python tests/cuda/test_cuda_nodes.py` prints the counts and the names of the kernels.
"""

import functools
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parents[1])] if __name__ == "__main__" else []

from support.emulated_cuda import REAL, to_device  # noqa: E402
from support.paper_device import Launch, benchmark_modules, paper_device  # noqa: E402

PROCESSORS = 132
"""Multiprocessors of an H100. The sizes of grids, and so the merging of kernels, depend on it."""
MINIBATCHES = 60
"""Number of minibatches counted, after as many that are not: every random decision occurs."""

pytestmark = pytest.mark.skipif(REAL, reason="counts on paper")


class Nodes(NamedTuple):
    """Largest counts of one minibatch, without and with natural gradient's update."""

    plain: int
    update: int
    added: int
    """Median of nodes with the update less the median without it."""
    products: int
    update_products: int
    alone: int
    """Launches outside of graphs once every graph is captured."""
    graphs: int
    """Launches of graphs. Natural gradient's update, on the side stream, is one graph."""


NODES = {
    "tdnn": Nodes(
        plain=138, update=154, added=17, products=47, update_products=59, alone=3, graphs=6
    ),
    "tdnnf": Nodes(
        plain=312, update=347, added=39, products=135, update_products=167, alone=3, graphs=9
    ),
    "lstm": Nodes(
        plain=334, update=351, added=17, products=115, update_products=127, alone=1, graphs=6
    ),
}
"""Bounds for full-size minibatches with statistics, self-repair and orthonormal constraint."""


@functools.cache
def minibatches(name: str) -> tuple[list[list[Launch]], dict[str, str]]:
    """The launches of each counted minibatch, and the sources of the kernels by name."""
    found = []
    with paper_device(PROCESSORS) as device, benchmark_modules() as load:
        network = load("networks").NETWORKS[name]()
        like = to_device(np.zeros(0, np.float32))
        variant = load("ours").Ours(network, like, replay=True, natural_gradient=True)
        variant.run(MINIBATCHES)
        for _ in range(MINIBATCHES):
            device.log.clear()
            variant.run(1)
            found.append(list(device.log))
    return found, device.sources


def is_update(launches: list[Launch]) -> bool:
    """Return whether the launches update natural gradient's estimates."""
    return any(launch.name.startswith("fisher_step") for launch in launches)


def count(found: list[list[Launch]]) -> Nodes:
    """The largest counts over these minibatches."""
    plain = [launches for launches in found if not is_update(launches)]
    updates = [launches for launches in found if is_update(launches)]

    def products(launches: list[Launch]) -> int:
        return sum(launch.name == "gemm" for launch in launches)

    def median(some: list[list[Launch]]) -> int:
        return sorted(map(len, some))[len(some) // 2]

    # a graph that is captured for the first time is preceded by a recording, alone
    alone = sorted(sum(launch.graph is None for launch in launches) for launches in found)
    graphs = (len({x.graph for x in launches if x.graph is not None}) for launches in found)
    return Nodes(
        max(map(len, plain)), max(map(len, updates)), median(updates) - median(plain),
        max(map(products, plain)), max(map(products, updates)),
        alone[len(alone) // 2], max(graphs),
    )  # fmt: skip


@pytest.mark.usefixtures("unpoisoned")
@pytest.mark.parametrize("name", sorted(NODES))
def test_a_minibatch_takes_no_more_nodes_than_its_bounds(name):
    found, bounds = count(minibatches(name)[0]), NODES[name]
    more = {k: (f, b) for k, f, b in zip(Nodes._fields, found, bounds, strict=True) if f > b}
    assert not more, f"{name}: (found, bound) of {more}"


@pytest.mark.usefixtures("unpoisoned")
@pytest.mark.parametrize("name", sorted(NODES))
def test_rows_of_products_begin_where_fast_kernels_want_them(name):
    """At multiples of 16 bytes: else cuBLAS takes kernels that are 10 to 20 % slower in float32."""
    for launches in minibatches(name)[0]:
        for launch in launches:
            if launch.name == "gemm":
                assert not [pitch for pitch in launch.args[5:8] if pitch % 4], launch.args


def main() -> None:
    """Print the counts of each network and the kernels of its largest minibatch."""
    for name in sys.argv[1:] or NODES:
        found, sources = minibatches(name)
        print(f'    "{name}": {count(found)},')
        for what, wanted in (("without", False), ("with", True)):
            sizes = sorted(len(launches) for launches in found if is_update(launches) == wanted)
            print(
                f"{what} update: {sizes[0]} to {sizes[-1]}, half of them {sizes[len(sizes) // 2]}"
            )
        largest = max(found, key=len)
        for kernel, times in Counter(launch.name for launch in largest).most_common():
            comment = next(iter(sources.get(kernel, "").splitlines()), "")
            print(f"{times:5} {kernel:30} {comment[:100] if comment.startswith('//') else ''}")


if __name__ == "__main__":
    main()
