"""The choice between the search in C and the search in Python."""

from __future__ import annotations

from nnet3tools.decoding.decoder import Decoder
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.native.library import decoding_library
from nnet3tools.decoding.native.search import NativeDecoder
from nnet3tools.decoding.options import SearchOptions

Search = Decoder | NativeDecoder
"""Both classes have the same methods and give the same tokens and links."""


def new_search(graph: DecodingGraph, options: SearchOptions) -> Search:
    """A new search over a graph, in C if the library is available; searches may share the graph."""
    library = decoding_library()
    return Decoder(graph, options) if library is None else NativeDecoder(library, graph, options)
