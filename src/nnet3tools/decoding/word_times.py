"""Start and end times of the words of a path, and their confidences from the lattice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.mbr import minimum_bayes_risk
from nnet3tools.decoding.traceback import BestPath
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.nnet.hmm.alignment import phone_ends
from nnet3tools.nnet.hmm.transition_model import Transitions


@dataclass(frozen=True)
class Lexicon:
    """The pronunciations of each word, and the silence phones, which may stand between words."""

    pronunciations: dict[int, list[tuple[int, ...]]]
    silence: frozenset[int]


@dataclass(frozen=True)
class SpokenWord:
    """A word, its frames (`begin` included, `end` not), and its posterior probability."""

    word: int
    begin: int
    end: int
    confidence: float


def spoken_words(
    path: BestPath, lattice: CompactLattice, transitions: Transitions, lexicon: Lexicon | None
) -> list[SpokenWord]:
    """The words of a path with times, in frames of the network's output, and confidences.

    Times come from the alignment's phones (`transitions` gives the phone of a transition id) and
    the lexicon. Without a lexicon, or if the phones do not match it (in a path that was cut off),
    they come from the positions of the words in the graph. Confidences are those of minimum Bayes
    risk, as lattice-to-ctm-conf --decode-mbr=false computes them; the lattice's costs must contain
    their scales.
    """
    words = path.transcript.tolist()
    confidences = minimum_bayes_risk(lattice, words, decode_mbr=False).confidences
    spans = word_spans(path, transitions, lexicon)
    return [
        SpokenWord(word, begin, end, min(1.0, confidence))
        for word, (begin, end), confidence in zip(words, spans, confidences, strict=True)
    ]


def word_spans(
    path: BestPath, transitions: Transitions, lexicon: Lexicon | None
) -> list[tuple[int, int]]:
    """(begin, end) in frames of each word of a path, by the lexicon or else by the graph."""
    if lexicon is not None:
        words = path.transcript.tolist()
        if (spans := _spans_by_lexicon(path.alignment, words, transitions, lexicon)) is not None:
            return spans
    return list(pairwise([*path.word_starts.tolist(), len(path.alignment)]))


def _spans_by_lexicon(
    alignment: NDArray[np.int32], words: list[int], transitions: Transitions, lexicon: Lexicon
) -> list[tuple[int, int]] | None:
    """(begin, end) in frames of each word; None if the alignment's phones do not fit `lexicon`."""
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
