"""Walk over FSTs in OpenFst's vector form, to find their end without NumPy."""

from __future__ import annotations

import math
import struct
import sys
from array import array

from nnet3tools.fst.file_numbers import HEADER, MAGIC, VECTOR_STATE, VERSION
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError

_NAMES = (b"vector", b"standard")
_START = struct.pack("<i", MAGIC) + b"".join(struct.pack("<i", len(n)) + n for n in _NAMES)
_SIZE_OF_ARC = 16


def walk_vector(walk: ByteWalk) -> None:
    """Pass a vector FST with the checks of `read_binary_fst`; OtherFormError for symbol tables."""
    if sys.byteorder != "little":
        raise OtherFormError
    walk.word(_START)
    version, flags, _, start, num_states, _ = walk.unpack(HEADER)
    if version != VERSION or flags or num_states < 0:
        raise OtherFormError
    if not (0 <= start < num_states or (start == -1 and not num_states)):
        raise OtherFormError
    finals: list[float] = []
    arcs: list[bytes] = []
    for _ in range(num_states):
        final, count = walk.unpack(VECTOR_STATE)
        if count < 0:
            raise OtherFormError
        begin = walk.at
        walk.skip(_SIZE_OF_ARC * count)
        finals.append(final)
        arcs.append(bytes(walk.data[begin : walk.at]))
    _check(finals, b"".join(arcs), num_states)


def _check(finals: list[float], arcs: bytes, num_states: int) -> None:
    """Raise OtherFormError unless labels, next states and weights are valid."""
    if math.isnan(sum(finals)) or min(finals, default=0.0) == -math.inf:
        raise OtherFormError
    if not arcs:
        return
    numbers, weights = array("i", arcs), array("f", arcs)[2::4]
    targets = numbers[3::4]
    if min(min(numbers[0::4]), min(numbers[1::4]), min(targets)) < 0 or max(targets) >= num_states:
        raise OtherFormError
    if math.isnan(sum(weights)) or min(weights) == -math.inf:
        raise OtherFormError
