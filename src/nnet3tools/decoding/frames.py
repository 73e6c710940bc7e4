"""Tokens of a frame of the search, and the links between tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass, replace


@dataclass
class Links:
    """Arrays over links: source and target token (numbers in their frames), arc, acoustic cost."""

    sources: NDArray[np.intp]
    targets: NDArray[np.intp]
    arcs: NDArray[np.intp]
    acoustic: NDArray[np.float32]

    def only(self, kept: NDArray[np.bool_]) -> Links:
        """A copy with the links for which the mask `kept` is True."""
        return Links(self.sources[kept], self.targets[kept], self.arcs[kept], self.acoustic[kept])


@dataclass
class Frame:
    """The tokens (graph state and cost) after one frame, and the links that lead to them.

    Acoustic costs in `emitting` contain `offset`, minus the best cost of the previous frame. It
    keeps costs small, so that float32 is exact enough.
    """

    states: NDArray[np.int32]
    costs: NDArray[np.float32]
    emitting: Links
    epsilon: Links
    offset: np.float32


NO_LINKS = Links(
    np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.float32)
)
"""An empty set of links."""


@dataclass(frozen=True)
class TokenLattice:
    """All tokens and links of an utterance; tokens are numbered through all frames.

    `num_tokens` (F + 1,) has the number of tokens after each frame, from frame 0 (none read) to F;
    `last_states` the graph states of the last frame's tokens. Acoustic costs in `emitting` contain
    no offset.
    """

    num_tokens: NDArray[np.int64]
    last_states: NDArray[np.int32]
    emitting: Links
    epsilon: Links

    @classmethod
    def of(cls, frames: list[Frame]) -> TokenLattice:
        """Join consecutive frames; their tokens are renumbered through all frames."""
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
    """Join the links of all frames; tokens get numbers through all frames.

    Frame i adds `before[i]` to sources, `firsts[i]` to targets.
    """
    counts = [len(link.arcs) for link in links]
    # The type is given because NumPy 1.26's type stubs infer bool for such a sum.
    sources: NDArray[np.intp] = np.concatenate([link.sources for link in links])
    targets: NDArray[np.intp] = np.concatenate([link.targets for link in links])
    return Links(
        sources + np.repeat(before, counts),
        targets + np.repeat(firsts, counts),
        np.concatenate([link.arcs for link in links]),
        np.concatenate([link.acoustic for link in links]),
    )
