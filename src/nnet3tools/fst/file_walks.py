"""Walks over FSTs in OpenFst's binary files, which find the end of an FST without NumPy."""

from __future__ import annotations

import math
import struct
import sys
from array import array

from nnet3tools.fst.file_numbers import (
    HEADER,
    MAGIC,
    NOT_AN_ARC,
    TRINARY,
    VECTOR_STATE,
    VERSION,
    all_settled,
)
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError

_SIZE_OF_ARC = 16
_EXPANDED = 1
_FEW = 4
"""Number of final states above which a set of all first elements of states pays off."""


def _start_of(kind: bytes) -> bytes:
    """The first bytes of an OpenFst file with standard arcs of type `kind`, such as "vector"."""
    names = (kind, b"standard")
    return struct.pack("<i", MAGIC) + b"".join(struct.pack("<i", len(n)) + n for n in names)


_VECTOR, _ACCEPTOR = _start_of(b"vector"), _start_of(b"compact_acceptor")


def _walk_header(walk: ByteWalk, start_of_file: bytes) -> tuple[int, int, int]:
    """Move `walk` past a file header; returns (properties, number of states, number of arcs).

    It must begin with `start_of_file`. OtherFormError for symbol tables, padding, other files.
    """
    if sys.byteorder != "little":
        raise OtherFormError
    walk.word(start_of_file)
    version, flags, properties, start, num_states, num_arcs = walk.unpack(HEADER)
    if version != VERSION or flags or num_states < 0:
        raise OtherFormError
    if not (0 <= start < num_states or (start == -1 and not num_states)):
        raise OtherFormError
    return properties, num_states, num_arcs


def walk_vector(walk: ByteWalk) -> None:
    """Move `walk` past a valid vector FST; OtherFormError if it is invalid or has symbol tables."""
    _, num_states, _ = _walk_header(walk, _VECTOR)
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
    _check_vector(finals, b"".join(arcs), num_states)


def _check_vector(finals: list[float], arcs: bytes, num_states: int) -> None:
    """Raise OtherFormError unless labels, next states and weights are valid.

    `arcs` are the file's arc records, `finals` the final weights.
    """
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


def walk_acceptor(walk: ByteWalk, label_dim: int) -> None:
    """Move `walk` past a valid compact acceptor whose labels are 0 to `label_dim`.

    OtherFormError for invalid files, and for forms that our writer does not produce: symbol tables,
    padding, unknown properties.
    """
    properties, num_states, num_arcs = _walk_header(walk, _ACCEPTOR)
    if properties & ~TRINARY != _EXPANDED or not all_settled(properties):
        raise OtherFormError
    ends = array("I", _piece(walk, num_states + 1)).tolist()
    if ends[0] or ends != sorted(ends):
        raise OtherFormError
    num_final = 0
    if ends[-1]:
        piece = _piece(walk, 3 * ends[-1])
        ints, weights = array("i", piece), array("f", piece)[1::3]
        num_final = _check_acceptor(ints[::3], weights, ints[2::3], ends, label_dim)
    if num_arcs != ends[-1] - num_final:
        raise OtherFormError


def _piece(walk: ByteWalk, count: int) -> bytes:
    """Move `walk` past `count` 4-byte numbers and return their bytes."""
    begin = walk.at
    walk.skip(4 * count)
    return bytes(walk.data[begin : walk.at])


def _check_acceptor(
    labels: array[int], weights: array[float], targets: array[int], ends: list[int], label_dim: int
) -> int:
    """Check the elements of a compact acceptor; returns the number of final weights.

    OtherFormError unless each element is a valid arc, or a final weight at the start of a state.
    `ends` has each state's first element, then the number of elements; labels are 0 to `label_dim`.
    """
    num_final = labels.count(NOT_AN_ARC)
    if min(labels) < NOT_AN_ARC or max(labels) > label_dim:
        raise OtherFormError
    if min(targets) < NOT_AN_ARC or max(targets) >= len(ends) - 1:
        raise OtherFormError
    if targets.count(NOT_AN_ARC) != num_final:
        raise OtherFormError
    if not math.isfinite(sum(weights)):
        raise OtherFormError
    starts = ends if num_final <= _FEW else set(ends)
    place = -1
    for _ in range(num_final):
        place = labels.index(NOT_AN_ARC, place + 1)
        if targets[place] != NOT_AN_ARC or place not in starts:
            raise OtherFormError
    return num_final
