"""What a decoder keeps of a frame: tokens, and the links between them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_LINKS", "Frame", "Links", "Ways"]


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
    is exact enough; it is minus the best cost of the frame before.
    """

    states: NDArray[np.int32]
    costs: NDArray[np.float32]
    emitting: Links
    epsilon: Links
    offset: np.float32


NO_LINKS = Links(
    np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.float32)
)
"""No links at all."""


@dataclass(frozen=True)
class Ways:
    """All tokens and links of an utterance, tokens counted over all frames.

    `num_tokens` (F + 1,) are the tokens after so many frames, `last_states` the graph's states of
    the last ones. Acoustic costs in `emitting` are those of the network, with no offset.
    """

    num_tokens: NDArray[np.int64]
    last_states: NDArray[np.int32]
    emitting: Links
    epsilon: Links

    @classmethod
    def of(cls, frames: list[Frame]) -> Ways:
        """Of all frames."""
        sizes = np.array([len(frame.states) for frame in frames])
        firsts = np.cumsum(sizes) - sizes
        before = np.concatenate([[0], firsts[:-1]])
        emitting = _counted([frame.emitting for frame in frames], before, firsts)
        acoustic = [frame.emitting.acoustic - frame.offset for frame in frames]
        return cls(
            sizes,
            frames[-1].states,
            replace(emitting, acoustic=np.concatenate(acoustic)),
            _counted([frame.epsilon for frame in frames], firsts, firsts),
        )


def _counted(links: list[Links], before: NDArray[np.intp], firsts: NDArray[np.intp]) -> Links:
    """Links of all frames; what counts their sources and targets begins at these numbers."""
    counts = [len(link.arcs) for link in links]
    # NumPy 1.26 says of sums of what it does not know the type of that they are of bool.
    sources: NDArray[np.intp] = np.concatenate([link.sources for link in links])
    targets: NDArray[np.intp] = np.concatenate([link.targets for link in links])
    return Links(
        sources + np.repeat(before, counts),
        targets + np.repeat(firsts, counts),
        np.concatenate([link.arcs for link in links]),
        np.concatenate([link.acoustic for link in links]),
    )
