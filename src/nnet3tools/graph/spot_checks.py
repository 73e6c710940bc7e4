"""The random numbers that Kaldi's graph builder spends on checking itself.

Kaldi decides with one stream of rand() which minibatches store statistics, self-repair or are
constrained, and its ComputationGraphBuilder (nnet-computation-graph.cc) draws from that stream to
choose when and what to check. Training repeats Kaldi's decisions only if the same numbers go. How
many go depends on how many cindexes there are after each hop of Kaldi's breadth-first search, so
its queues are replayed, for the small request that shortcut compilation compiles: in C (native/),
some ten to eighty times as fast as one cindex at a time in Python (queue_search.py); without a
compiler with arrays (strict_search.py) where all cindexes can be computed and need all of their
dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from nnet3tools import tensor
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.queue_search import QueueSearch
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.strict_search import StrictSearch, is_strict
from nnet3tools.tensor.cpu.choice import are_native

__all__ = ["draw_graph_checks"]

_MAX_HOPS = 10000
_FEW = 1000
"""Cindexes that Python goes through before the C library is loaded (2 ms and its imports)."""


def draw_graph_checks(builder: GraphBuilder, request: ComputationRequest) -> None:
    """Draw as many numbers from `tensor.random` as building this request's graph costs Kaldi.

    `builder` has explored the request, and it alone, and has not pruned anything yet.
    """
    num_cindexes = 0
    for hop, num_cindexes in enumerate(_sizes(builder, request), 1):
        if tensor.random.rand_int(1, hop + 1) == 1:
            _draw_check(num_cindexes)
    if tensor.random.rand_int(1, 2) == 1:
        _draw_check(num_cindexes)


def _sizes(builder: GraphBuilder, request: ComputationRequest) -> Iterable[int]:
    """After each hop of Kaldi's search the number of cindexes found."""
    max_hops = _MAX_HOPS - 1
    if builder.store.size > _FEW and are_native():
        from nnet3tools.graph.native.search import NativeSearch, search_library

        if (library := search_library()) is not None:
            return NativeSearch(library, builder, request).sizes(max_hops)
    search = StrictSearch if is_strict(builder) else QueueSearch
    return islice(search(builder, request).sizes(), max_hops)


def _draw_check(num_cindexes: int) -> None:
    """ComputationGraphBuilder::Check: a number for each cindex looked at, one for the next step."""
    cindex, largest_step = 0, num_cindexes // 100
    while cindex < num_cindexes:
        tensor.random.rand_int(0, cindex)
        cindex += 1 + tensor.random.rand_int(0, largest_step)
