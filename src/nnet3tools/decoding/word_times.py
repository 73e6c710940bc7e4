"""Times of the words of a path, and their confidences from the lattice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.traceback import BestPath
from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.fst.lattice_conversion import top_sorted
from nnet3tools.nnet.hmm.alignment import phone_ends
from nnet3tools.nnet.hmm.transition_model import Transitions


@dataclass(frozen=True)
class Lexicon:
    """Pronunciations by word, and the phones that may stand between words."""

    pronunciations: dict[int, list[tuple[int, ...]]]
    silence: frozenset[int]


@dataclass(frozen=True)
class SpokenWord:
    """A word, its frames [begin, end), and its posterior probability."""

    word: int
    begin: int
    end: int
    confidence: float


def spoken_words(
    path: BestPath, lattice: CompactLattice, transitions: Transitions, lexicon: Lexicon | None
) -> list[SpokenWord]:
    """The words of a path with times in frames of the network's output.

    Times come from the alignment's phones and the lexicon. Without a lexicon, or if the phones do
    not match it (in a path that was cut off), they come from the positions of the words in the
    graph. A confidence is the sum of the posteriors of arcs with the word at about that time.
    """
    arcs = _timed_posteriors(lattice)
    words = path.transcript.tolist()
    spans = word_spans(path, transitions, lexicon)
    spoken = [SpokenWord(word, *span, 0.0) for word, span in zip(words, spans, strict=True)]
    return [replace(word, confidence=_confidence(arcs, word)) for word in spoken]


def word_spans(
    path: BestPath, transitions: Transitions, lexicon: Lexicon | None
) -> list[tuple[int, int]]:
    """Frames [begin, end) of each word of a path, by the lexicon or else by the graph."""
    if lexicon is not None:
        words = path.transcript.tolist()
        spans = _spans_by_lexicon(path.alignment, words, transitions, lexicon)
        if spans is not None:
            return spans
    return list(pairwise([*path.word_starts.tolist(), len(path.alignment)]))


def _spans_by_lexicon(
    alignment: NDArray[np.int32], words: list[int], transitions: Transitions, lexicon: Lexicon
) -> list[tuple[int, int]] | None:
    """Frames [begin, end) of each word; None if the phones do not match the pronunciations."""
    ends = [0, *phone_ends(transitions, alignment).tolist()]
    phones = transitions.phones[alignment[ends[:-1]]].tolist()
    # State: the number of phones used, and the first and last phone of each word so far.
    stack: list[tuple[int, tuple[tuple[int, int], ...]]] = [(0, ())]
    seen = set()
    while stack:
        place, said = stack.pop()
        if (place, len(said)) in seen:
            continue
        seen.add((place, len(said)))
        if place == len(phones) and len(said) == len(words):
            return [(ends[begin], ends[end]) for begin, end in said]
        if place < len(phones) and phones[place] in lexicon.silence:
            stack.append((place + 1, said))
        if len(said) < len(words):
            for phones_of_word in lexicon.pronunciations.get(words[len(said)], []):
                end = place + len(phones_of_word)
                if tuple(phones[place:end]) == phones_of_word:
                    stack.append((end, (*said, (place, end))))
    return None


def _timed_posteriors(lattice: CompactLattice) -> list[tuple[int, int, int, float]]:
    """Word, begin frame, end frame and posterior probability of each arc with a word."""
    lattice = top_sorted(lattice)
    arcs, finals = lattice.arc_lists(), lattice.final_list()
    size = len(arcs)
    forward, backward, times = [-math.inf] * size, [-math.inf] * size, [0] * size
    forward[lattice.fst.start] = 0.0
    for state, of_state in enumerate(arcs):
        for _, graph, acoustic, ids, target in of_state:
            score = forward[state] - graph - acoustic
            forward[target] = float(np.logaddexp(forward[target], score))
            times[target] = times[state] + len(ids)
    for state in range(size - 1, -1, -1):
        final = finals[state]
        scores = [-math.inf if final is None else -final[0] - final[1]]
        scores += [backward[arc[4]] - arc[1] - arc[2] for arc in arcs[state]]
        backward[state] = float(np.logaddexp.reduce(scores))
    total = backward[lattice.fst.start]
    return [
        (
            word,
            times[state],
            times[target],
            math.exp(forward[state] - graph - acoustic + backward[target] - total),
        )
        for state, of_state in enumerate(arcs)
        for word, graph, acoustic, _, target in of_state
        if word
    ]


def _confidence(arcs: Sequence[tuple[int, int, int, float]], word: SpokenWord) -> float:
    """The sum, at most 1, of posteriors of arcs with the word that overlap or touch its frames.

    Determinization moves transition ids between neighbouring arcs, so their times are not exact.
    """
    total = sum(
        probability
        for label, begin, end, probability in arcs
        if label == word.word and begin <= word.end and end >= word.begin
    )
    return min(1.0, total)
