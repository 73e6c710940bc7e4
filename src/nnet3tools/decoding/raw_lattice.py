"""The raw lattice of a decoder: its tokens and links as states and arcs (GetRawLattice)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.frames import TokenLattice
from nnet3tools.decoding.search import Search
from nnet3tools.errors import DataError
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.lattice import Lattice

_Ints = NDArray[np.intp]


def raw_lattice(decoder: Search, may_loop: bool = False) -> Lattice:
    """The lattice of all paths that the decoder kept, with its states in topological order.

    The arcs of a state are in Kaldi's order: emitting arcs first, the latest ones first. The
    lattice has no states if costs were too large to be finite. A loop of epsilon arcs is a
    DataError; with `may_loop` it is accepted, and then the states are not in order.
    """
    tokens, graph = decoder.token_lattice(), decoder.graph
    if not tokens.num_tokens.all():
        return Lattice(Fst.empty(), np.zeros(0, np.float32), np.zeros(0, np.float32))
    numbers = np.arange(int(tokens.num_tokens.sum())) if may_loop else _topological_numbers(tokens)
    finals = np.full(len(numbers), NOT_FINAL, np.float32)
    last_finals = graph.finals[tokens.last_states]
    if (last_finals == NOT_FINAL).all():  # no final state has been reached
        last_finals = np.zeros(len(last_finals), np.float32)
    finals[numbers[len(numbers) - len(last_finals) :]] = last_finals
    both, arcs = (tokens.emitting, tokens.epsilon), graph.fst
    places = np.concatenate([links.arcs[::-1] for links in both])
    sources = numbers[np.concatenate([links.sources[::-1] for links in both])]
    fst = Fst.from_arcs(
        int(numbers[0]),
        finals,
        sources,
        arcs.ilabels[places],
        arcs.weights[places],
        numbers[np.concatenate([links.targets[::-1] for links in both])],
        arcs.olabels[places],
    )
    acoustic = np.concatenate([links.acoustic[::-1] for links in both])
    order = np.argsort(sources, kind="stable")
    return Lattice(fst, acoustic[order], np.zeros(len(finals), np.float32))


def _topological_numbers(tokens: TokenLattice) -> _Ints:
    """The lattice state of each token, (tokens,), in topological order: frame after frame.

    Within a frame, epsilon links must lead to higher numbers. If a link leads back to a token, the
    token is moved after the frame's other tokens (as TopSortTokens does).
    """
    numbers = np.arange(int(tokens.num_tokens.sum()))
    sources, targets = tokens.epsilon.sources, tokens.epsilon.targets
    if (targets > sources).all():
        return numbers
    ends = np.cumsum(tokens.num_tokens)
    frames = np.searchsorted(ends, sources, side="right")
    # np.unique would import numpy.ma: 15 ms.
    for frame in np.flatnonzero(np.bincount(frames[targets <= sources])).tolist():
        begin = int(ends[frame - 1]) if frame else 0
        links = np.flatnonzero(frames == frame)
        size = int(ends[frame]) - begin
        followers: list[list[int]] = [[] for _ in range(size)]
        for source, target in zip(sources[links][::-1], targets[links][::-1], strict=True):
            followers[source - begin].append(int(target) - begin)
        numbers[begin : ends[frame]] = begin + np.argsort(np.argsort(_places(followers)))
    return numbers


def _places(followers: list[list[int]]) -> _Ints:
    """A position for each token, before its followers' (`followers[i]`); DataError for a loop."""
    places = list(range(len(followers)))
    last = len(places)
    waiting = dict.fromkeys(places)
    for _ in range(len(places) + 2):
        moved: dict[int, None] = {}
        for token in waiting:
            for follower in followers[token]:
                if places[follower] <= places[token]:
                    places[follower] = last
                    last += 1
                    moved[follower] = None
            moved.pop(token, None)
        if not moved:
            return np.array(places)
        waiting = moved
    raise DataError("the decoding graph has an epsilon loop: lattices must have none")
