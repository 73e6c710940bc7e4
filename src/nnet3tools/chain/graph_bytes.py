"""Training graphs as bytes, of which as little as possible is looked at. Without NumPy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nnet3tools.fst.vector_walk import walk_vector
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.held_bytes import HeldBytes
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.training.example_layout import AT_HAND

if TYPE_CHECKING:
    from nnet3tools.fst.fst import Fst

__all__ = ["GRAPH_BYTES", "GraphBytes"]

_KEY = re.compile(rb"([!-~]+)[ \t]")


class GraphBytes(HeldBytes["Fst"]):
    """The bytes of a vector FST."""

    __slots__ = ()

    @staticmethod
    def read_whole(reader: Reader) -> Fst:
        """As read_fst."""
        # Here, as it loads NumPy.
        from nnet3tools.fst.files import read_fst

        return read_fst(reader)

    @staticmethod
    def write_whole(writer: Writer, value: Fst) -> None:
        """As tables of FSTs have it."""
        from nnet3tools.fst.files import FST

        FST.write(writer, value)


def _entries(reader: Reader) -> Iterator[tuple[str, GraphBytes]]:
    data = reader.buffered(AT_HAND)
    start = 0
    while (key := _KEY.match(data, start)) is not None:
        walk = ByteWalk(data, key.end())
        try:
            walk_vector(walk)
        except (IndexError, OtherFormError):
            return
        reader.advance(walk.at - start)
        start = walk.at
        yield key.group(1).decode(), GraphBytes(data[key.end() : start])


def _write(writer: Writer, graph: GraphBytes | Fst) -> None:
    if isinstance(graph, GraphBytes):
        graph.write(writer)
    else:
        GraphBytes.write_whole(writer, graph)


GRAPH_BYTES: Holder[GraphBytes | Fst] = Holder(
    "an FST", GraphBytes.read_whole, _write, has_header=False, entries=_entries
)
"""The holder of tables of FSTs that are made acceptors."""
