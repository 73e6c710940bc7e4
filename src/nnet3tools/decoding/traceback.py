"""The best path through a decoder's frames: its labels and costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.decoder import Decoder
from nnet3tools.decoding.frames import Links
from nnet3tools.decoding.graph import ArcTable

__all__ = ["BestPath", "best_path", "best_token"]


@dataclass(frozen=True)
class BestPath:
    """The arcs of a path in order of time.

    `ilabels` are transition ids, or 0 where an arc reads no frame, `words` are words or 0;
    `graph` and `acoustic` are costs, float32. The final weight's cost is `final`.
    """

    ilabels: NDArray[np.int32]
    words: NDArray[np.int32]
    graph: NDArray[np.float32]
    acoustic: NDArray[np.float32]
    final: float = 0.0

    @property
    def alignment(self) -> NDArray[np.int32]:
        """The transition id of each frame."""
        return self.ilabels[self.ilabels != 0]

    @property
    def transcript(self) -> NDArray[np.int32]:
        """The words."""
        return self.words[self.words != 0]

    @property
    def word_starts(self) -> NDArray[np.intp]:
        """The frame in which each word of the transcript comes out."""
        frames = np.cumsum(self.ilabels != 0) - (self.ilabels != 0)
        return frames[self.words != 0]

    @property
    def frame_costs(self) -> NDArray[np.float32]:
        """The acoustic cost of each frame."""
        return self.acoustic[self.ilabels != 0]

    @property
    def costs(self) -> tuple[float, float]:
        """Graph and acoustic cost of the whole path, added up in float32 as Kaldi does."""
        graph = np.append(self.graph, np.float32(self.final))
        return _total(graph), _total(self.acoustic)


def _total(costs: NDArray[np.float32]) -> float:
    return float(np.cumsum(costs, dtype=np.float32)[-1]) if len(costs) else 0.0


def best_token(decoder: Decoder, use_final: bool = True) -> tuple[int, float]:
    """The place of the best token of the last frame, and its final cost.

    With `use_final`, tokens in final states come first, if there are any.
    """
    frame = decoder.frames[-1]
    if use_final and decoder.reached_final():
        finals = decoder.graph.finals[frame.states]
        token = int(np.argmin(frame.costs + finals))
        return token, float(finals[token])
    return int(np.argmin(frame.costs)), 0.0


def best_path(decoder: Decoder, use_final: bool = True) -> BestPath:
    """The path to the best token; the decoder must be alive."""
    token, final = best_token(decoder, use_final)
    table = decoder.graph.emitting
    steps: list[tuple[bool, int, float]] = []
    number = decoder.num_frames
    while True:
        frame = decoder.frames[number]
        if not frame.is_entered(token):
            links = frame.epsilon
            link = _best_link(links, token, frame.costs, decoder.graph.epsilon)
            steps.append((False, int(links.arcs[link]), 0.0))
        elif number > 0:
            number -= 1
            links = frame.emitting
            link = _best_link(links, token, decoder.frames[number].costs, table)
            steps.append((True, int(links.arcs[link]), links.acoustic[link] - frame.offset))
        else:
            return _path(decoder, steps[::-1], final)
        token = int(links.sources[link])


def _best_link(links: Links, token: int, source_costs: NDArray[np.float32], table: ArcTable) -> int:
    """Which of the links to a token makes the cheapest way."""
    candidates = np.flatnonzero(links.targets == token)
    costs = source_costs[links.sources[candidates]] + links.acoustic[candidates]
    return int(candidates[np.argmin(costs + table.weights[links.arcs[candidates]])])


def _path(decoder: Decoder, steps: list[tuple[bool, int, float]], final: float) -> BestPath:
    emits = np.array([step[0] for step in steps], bool)
    arcs = np.array([step[1] for step in steps], np.intp)
    acoustic = np.array([step[2] for step in steps], np.float32)
    ilabels = np.zeros(len(arcs), np.int32)
    words, graph = ilabels.copy(), np.zeros(len(arcs), np.float32)
    for table, chosen in ((decoder.graph.emitting, emits), (decoder.graph.epsilon, ~emits)):
        ilabels[chosen] = table.ilabels[arcs[chosen]]
        words[chosen] = table.olabels[arcs[chosen]]
        graph[chosen] = table.weights[arcs[chosen]]
    return BestPath(ilabels, words, graph, acoustic, final)
