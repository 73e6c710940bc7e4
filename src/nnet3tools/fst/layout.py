"""Record layouts of OpenFst's binary files with standard arcs."""

from __future__ import annotations

import numpy as np

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
