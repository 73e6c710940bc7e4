"""Constants of OpenFst's binary files, usable with and without NumPy."""

from __future__ import annotations

import struct

MAGIC = 2125659606
SYMBOL_TABLE_MAGIC = 2125658996
VERSION = 2
ALIGNED_VERSION = 1
HAS_INPUT_SYMBOLS, HAS_OUTPUT_SYMBOLS, IS_ALIGNED = 1, 2, 4
ALIGNMENT = 16

VECTOR_STATE = struct.Struct("<fq")
HEADER = struct.Struct("<iiQqqq")
"""Version, flags, properties, start, number of states, number of arcs."""
NOT_AN_ARC = -1
"""Label and next state that mark a final weight in a compact file."""

TRINARY = 0x0000FFFFFFFF0000
"""The properties stored as pairs of bits, "true" and "false"."""


def all_settled(properties: int) -> bool:
    """Whether every property is known: of each pair of OpenFst's bits at least one is set."""
    yes = TRINARY & 0x5555555555555555
    return (properties | properties >> 1) & yes == yes
