"""The numbers in OpenFst's binary files, for those who read them with and without NumPy."""

from __future__ import annotations

import struct

__all__ = [
    "ALIGNED_VERSION",
    "ALIGNMENT",
    "HAS_INPUT_SYMBOLS",
    "HAS_OUTPUT_SYMBOLS",
    "HEADER",
    "IS_ALIGNED",
    "MAGIC",
    "NOT_AN_ARC",
    "SYMBOL_TABLE_MAGIC",
    "TRINARY",
    "VECTOR_STATE",
    "VERSION",
    "all_settled",
]

MAGIC = 2125659606
SYMBOL_TABLE_MAGIC = 2125658996
VERSION = 2
ALIGNED_VERSION = 1
HAS_INPUT_SYMBOLS, HAS_OUTPUT_SYMBOLS, IS_ALIGNED = 1, 2, 4
ALIGNMENT = 16

VECTOR_STATE = struct.Struct("<fq")
HEADER = struct.Struct("<iiQqqq")
"""Version, flags, properties, start, numbers of states and of arcs."""
NOT_AN_ARC = -1
"""Label and next state of the element that is a final weight in a compact file."""

TRINARY = 0x0000FFFFFFFF0000
"""The properties that come in pairs of bits, "it is so" and "it is not so"."""


def all_settled(properties: int) -> bool:
    """Whether of every pair one bit is set."""
    yes = TRINARY & 0x5555555555555555
    return (properties | properties >> 1) & yes == yes
