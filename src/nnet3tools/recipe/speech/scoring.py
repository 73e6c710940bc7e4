"""Word errors of recognized text, and the scale of the language model with the fewest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.files import read_text
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.recipe.speech.setup import (
    CHAIN,
    CMVN_OPTIONS,
    DECODE,
    GRAPH,
    HELD_OUT,
    SUBSAMPLING,
    read_table,
)
from nnet3tools.recognizer.directory import ModelFacts, write_directory

LM_SCALES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)
WordPair = tuple[str, str]
"""A word that was said and what was recognized for it; "" where there is none."""


def aligned(said: Sequence[str], recognized: Sequence[str]) -> list[WordPair]:
    """Pairs (said word, recognized word) with the fewest errors; "" stands for no word."""
    costs = [list(range(len(recognized) + 1))]
    for word in said:
        row = [costs[-1][0] + 1]
        for j, other in enumerate(recognized):
            row.append(min(costs[-1][j] + (word != other), costs[-1][j + 1] + 1, row[j] + 1))
        costs.append(row)
    pairs = []
    i, j = len(said), len(recognized)
    while i or j:
        if i and j and costs[i][j] == costs[i - 1][j - 1] + (said[i - 1] != recognized[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((said[i], recognized[j]))
        elif i and costs[i][j] == costs[i - 1][j] + 1:
            i -= 1
            pairs.append((said[i], ""))
        else:
            j -= 1
            pairs.append(("", recognized[j]))
    return pairs[::-1]


@dataclass(frozen=True)
class Scores:
    """Aligned pairs (said word, recognized word) of each utterance; "" stands for no word."""

    pairs: dict[str, list[WordPair]]

    @classmethod
    def of(cls, said: Mapping[str, Sequence[str]], text: Mapping[str, Sequence[str]]) -> Scores:
        """Align each utterance's words `said` with its words in `text` (none if it is absent)."""
        return cls({key: aligned(words, text.get(key, ())) for key, words in said.items()})

    @cached_property
    def errors(self) -> dict[str, int]:
        """The number of word errors in each utterance."""
        return {key: sum(a != b for a, b in pairs) for key, pairs in self.pairs.items()}

    @cached_property
    def confusions(self) -> Counter[WordPair]:
        """The number of times that each pair of different words was aligned."""
        return Counter(p for pairs in self.pairs.values() for p in pairs if p[0] != p[1])

    @cached_property
    def num_errors(self) -> int:
        """The number of word errors in all utterances."""
        return sum(self.errors.values())

    @cached_property
    def num_words(self) -> int:
        """The number of spoken words in all utterances."""
        return sum(bool(said) for pairs in self.pairs.values() for said, _ in pairs)

    @property
    def percent(self) -> float:
        """The word error rate in percent."""
        return 100.0 * self.num_errors / max(self.num_words, 1)

    def worst(self, count: int) -> list[str]:
        """At most `count` utterances, those with the most errors; each has an error."""
        order = sorted(self.errors, key=lambda key: (-self.errors[key], key))
        return [key for key in order[:count] if self.errors[key]]


def best_scale(errors: dict[float, int]) -> float:
    """The scale with the fewest errors; if several scales have as few, the middle one."""
    fewest = min(errors.values())
    best = [scale for scale, count in errors.items() if count == fewest]
    return best[len(best) // 2]


def write_model_directory() -> None:
    """Write the files for decoding to "."; the scale of the language model makes fewest errors."""
    numbers = SymbolTable.load(str(GRAPH / "words.txt")).numbers
    names = {str(number): name for name, number in numbers.items()}
    said = read_table(HELD_OUT / "text")
    errors = {}
    for scale in LM_SCALES:
        found = read_table(DECODE / f"words.{scale:g}")
        text = {key: [names[number] for number in row] for key, row in found.items()}
        errors[scale] = Scores.of(said, text).num_errors
    chosen = best_scale(errors)
    shown = ", ".join(f"{scale:g}: {count}" for scale, count in errors.items())
    log.log(
        f"Errors of the held-out part by scale of the language model: {shown}; taken: {chosen:g}"
    )
    decoding = {
        "acoustic-scale": 1.0,
        "lm-scale": chosen,
        "endpoint.silence-phones": read_text(f"{GRAPH}/phones/silence.csl").strip(),
    }
    facts = ModelFacts(
        SUBSAMPLING,
        features=Path("mfcc.conf"),
        cmvn_opts=CMVN_OPTIONS,
        global_cmvn_stats=CHAIN / "global_cmvn.stats",
        decoding=decoding,
    )
    write_directory(".", facts)
