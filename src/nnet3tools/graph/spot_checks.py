"""The random numbers that Kaldi's graph builder spends on checking itself.

Kaldi decides with one stream of rand() which minibatches store statistics, self-repair or are
constrained. Its ComputationGraphBuilder (nnet-computation-graph.cc) draws from the same stream to
choose when and what to check. A training repeats Kaldi's decisions only if as many numbers are
drawn here. Their count depends on the number of cindexes after each hop of Kaldi's breadth-first
search, so that search is replayed for the small request that shortcut compilation compiles: by the
C library (native/), or one cindex at a time in Python (queue_search.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from nnet3tools import tensor
from nnet3tools.tensor.cpu.choice import are_native

if TYPE_CHECKING:
    from nnet3tools.graph.builder import GraphBuilder
    from nnet3tools.graph.request import ComputationRequest

_MAX_HOPS = 10000
_FEW = 500
"""Python searches up to this many cindexes: it takes 3 ms, as long as loading the C library."""


def draw_graph_checks(builder: GraphBuilder, request: ComputationRequest) -> list[int]:
    """Draw as many numbers from `tensor.random` as Kaldi draws while it builds a request's graph.

    `builder` must have explored this request only, and must not have pruned the graph yet. The
    result is the sizes for which `draw_checks` draws the same.
    """
    sizes = list(sizes_by_hop(builder, request))
    draw_checks(sizes)
    return sizes


def draw_checks(sizes: Iterable[int]) -> None:
    """Draw as Kaldi while its search of a graph has found sizes[i] cindexes after hop i."""
    num_cindexes = 0
    for hop, num_cindexes in enumerate(sizes, 1):
        if tensor.random.rand_int(1, hop + 1) == 1:
            _draw_check(num_cindexes)
    if tensor.random.rand_int(1, 2) == 1:
        _draw_check(num_cindexes)


def sizes_by_hop(builder: GraphBuilder, request: ComputationRequest) -> Iterable[int]:
    """How many cindexes the graph has after each hop of Kaldi's search from the outputs."""
    max_hops = _MAX_HOPS - 1
    if builder.store.size > _FEW and are_native():
        from nnet3tools.graph.native.search import NativeSearch, search_library

        if (library := search_library()) is not None:
            return NativeSearch(library, builder, request).sizes(max_hops)
    from nnet3tools.graph.queue_search import QueueSearch

    return islice(QueueSearch(builder, request).sizes(), max_hops)


def _draw_check(num_cindexes: int) -> None:
    """Draw as ComputationGraphBuilder::Check on `num_cindexes`: two numbers for each visited."""
    rand_int, cindex, largest_step = tensor.random.rand_int, 0, num_cindexes // 100
    while cindex < num_cindexes:
        rand_int(0, cindex)
        cindex += 1 + rand_int(0, largest_step)
