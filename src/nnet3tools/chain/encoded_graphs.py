"""Tables of training graphs that are kept as bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any, cast

from nnet3tools.fst.file_walks import walk_vector
from nnet3tools.fst.files import FST, read_fst
from nnet3tools.fst.fst import Fst
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.encoded import encoded_entries
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader


@dataclass(frozen=True)
class EncodedGraph:
    """The bytes of an FST in OpenFst's vector format."""

    data: bytes

    def whole(self) -> Fst:
        """The decoded FST."""
        return read_fst(Reader(io.BytesIO(self.data), binary=True))


def _find(data: bytes, start: int) -> tuple[EncodedGraph, int] | None:
    walk = ByteWalk(data, start)
    try:
        walk_vector(walk)
    except OtherFormError:
        return None
    return EncodedGraph(data[start : walk.at]), walk.at


ENCODED_GRAPHS: Holder[Any] = replace(
    cast(Holder[Any], FST), entries=lambda reader: encoded_entries(reader, _find, has_header=False)
)
"""The holder for reading tables of FSTs, which are EncodedGraphs where that is possible."""
