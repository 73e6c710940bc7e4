"""How OpenFst lays out its binary files of standard arcs."""

from __future__ import annotations

import struct

import numpy as np

__all__ = [
    "ALIGNED_VERSION",
    "ALIGNMENT",
    "ARC",
    "COMPACT_ARC",
    "CONST_STATE",
    "HAS_INPUT_SYMBOLS",
    "HAS_OUTPUT_SYMBOLS",
    "HEADER",
    "IS_ALIGNED",
    "MAGIC",
    "NOT_AN_ARC",
    "SYMBOL_TABLE_MAGIC",
    "VECTOR_STATE",
    "VERSION",
]

MAGIC = 2125659606
SYMBOL_TABLE_MAGIC = 2125658996
VERSION = 2
ALIGNED_VERSION = 1
HAS_INPUT_SYMBOLS, HAS_OUTPUT_SYMBOLS, IS_ALIGNED = 1, 2, 4
ALIGNMENT = 16

ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
COMPACT_ARC = np.dtype([("label", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
CONST_STATE = np.dtype(
    [
        ("final", "<f4"),
        ("pos", "<u4"),
        ("narcs", "<u4"),
        ("niepsilons", "<u4"),
        ("noepsilons", "<u4"),
    ]
)
VECTOR_STATE = struct.Struct("<fq")
HEADER = struct.Struct("<iiQqqq")
NOT_AN_ARC = -1
"""Label and next state of the element that is a final weight in a compact file."""
