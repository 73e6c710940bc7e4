"""What a decoder keeps of a frame: tokens, and the links between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_LINKS", "Frame", "Links"]


@dataclass
class Links:
    """Ways from token to token: places of both in their frames, the graph's arc, acoustic cost."""

    sources: NDArray[np.intp]
    targets: NDArray[np.intp]
    arcs: NDArray[np.intp]
    acoustic: NDArray[np.float32]

    def only(self, kept: NDArray[np.bool_]) -> Links:
        """Those of a mask."""
        return Links(self.sources[kept], self.targets[kept], self.arcs[kept], self.acoustic[kept])


@dataclass
class Frame:
    """Tokens after so many frames: graph states and costs, and the links that lead to them.

    Acoustic costs in `emitting` have `offset` added, which keeps costs in a range where float32
    is exact enough; it is minus the best cost of the frame before. The first tokens are those that
    the frame's arcs lead to, with `entry_costs` before epsilon arcs were followed.
    """

    states: NDArray[np.int32]
    costs: NDArray[np.float32]
    entry_costs: NDArray[np.float32]
    emitting: Links
    epsilon: Links
    offset: np.float32

    def is_entered(self, token: int) -> bool:
        """Whether a token has its cost from an arc that reads the frame."""
        return token < len(self.entry_costs) and self.entry_costs[token] == self.costs[token]


NO_LINKS = Links(
    np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.float32)
)
"""No links at all."""
