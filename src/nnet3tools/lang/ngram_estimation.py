"""Estimation of n-gram language models: interpolated modified Kneser-Ney smoothing.

An n-gram "h w" of history h and word w has the adjusted count a(h w). In the highest order, and for
n-grams that begin with <s>, it is the number of occurrences; otherwise it is the number of
different words before the n-gram. Let s(h) be the sum of a(h w) over w, and h' the history h
without its first word. With discounts D,

    p(w | h) = (a(h w) - D(a(h w))) / s(h) + b(h) p(w | h'),   b(h) = sum_w D(a(h w)) / s(h).

Unigrams are interpolated with the uniform distribution over all words but <s>. A unigram that does
not occur, such as <unk>, has the adjusted count 0. D has three values for each order, for the
adjusted counts 1, 2, and 3 or more. With n_i n-grams of adjusted count i and
Y = n_1 / (n_1 + 2 n_2),

    D(i) = i - (i + 1) Y n_(i+1) / n_i.

The formulas are those of Chen and Goodman 1998 (equation 26) and of Heafield et al. 2013, whose
program is KenLM's lmplz.

In small data n_1, n_2 or n_3 can be 0, and D(i) can be outside 0 .. i. For such an order SRILM and
lmplz stop; here its discounts are 0.5, 1 and 1.5, as with lmplz --discount_fallback.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.lang.ngram_model import (
    ABSENT,
    BEGIN,
    BEGIN_NUMBER,
    END,
    NGramModel,
    NGrams,
    NumberedText,
)

MAX_ORDER = 4
_FALLBACK = (0.5, 1.0, 1.5)
_LOG10_PROB_OF_BEGIN = -99.0
"""As in other programs' ARPA files: <s> is never predicted."""


@dataclass(frozen=True)
class _Counts:
    """The n-grams of one order with their counts, sorted by (history, last word).

    A key is the history's index in the next lower order * number of words + last word. `histories`
    and `suffixes` are the indexes in that order of the n-grams without last and without first word.
    """

    keys: NDArray[np.int64]
    histories: NDArray[np.int64]
    suffixes: NDArray[np.int64]
    at_begin: NDArray[np.bool_]
    """Whether the n-gram begins with <s>."""
    occurrences: NDArray[np.int64]


def estimate(
    sentences: Iterable[Sequence[str]],
    order: int,
    vocabulary: Iterable[str] | None = None,
    unknown: str = "<unk>",
) -> NGramModel:
    """Estimate a model of `order` 1 to 4 from sentences.

    Without a vocabulary, the model has the words of the sentences and `unknown`. With one, the
    model has exactly its words, and other words of the sentences count as `unknown`. If the
    vocabulary lacks `unknown`, n-grams with other words are left out. If no sentence is long
    enough for the order, the order is lower. DataError if there are no sentences.
    """
    kept = [sentence for sentence in sentences if sentence]
    if not kept:
        raise DataError("expected sentences to estimate a language model from, found none")
    known = {*chain.from_iterable(kept), unknown} if vocabulary is None else set(vocabulary)
    words = (BEGIN, END, *sorted(known - {BEGIN, END}))
    numbers = {word: number for number, word in enumerate(words)}
    text = NumberedText.of(kept, numbers, numbers.get(unknown, ABSENT))
    if num_left_out := int(np.count_nonzero(text.words == ABSENT)):
        log.warning(f"{num_left_out} words are not in the vocabulary, which lacks '{unknown}' too")
    counts = _count(text, order, len(words))
    if len(counts) < order:
        log.warning(f"no sentence has {order}-grams: the model's order is {len(counts)}")
    return NGramModel(words, _smoothed(counts, len(words)), unknown)


def _count(text: NumberedText, order: int, num_words: int) -> list[_Counts]:
    """The counts of orders 1 to `order`, as far as n-grams occur; words are below `num_words`."""
    seen = text.words[(text.places > 0) & (text.words >= 0)]
    words, zeros = np.arange(num_words), np.zeros(num_words, np.int64)
    occurrences = np.bincount(seen, minlength=num_words)
    counts = [_Counts(words, zeros, zeros, words == BEGIN_NUMBER, occurrences)]
    numbers = text.words  # of the n-gram that ends at each word
    for length in range(2, order + 1):
        histories = np.concatenate(([ABSENT], numbers[:-1]))
        (ends,) = np.nonzero((text.places > 0) & (histories >= 0) & (text.words >= 0))
        if not len(ends):
            break
        keys, first, inverse, occurrences = np.unique(
            histories[ends] * num_words + text.words[ends],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        first = ends[first]
        at_begin = text.places[first] == length - 1
        counts.append(_Counts(keys, keys // num_words, numbers[first], at_begin, occurrences))
        numbers = np.full(len(text.words), ABSENT)
        numbers[ends] = inverse
    return counts


def _smoothed(counts: Sequence[_Counts], num_words: int) -> tuple[NGrams, ...]:
    """Apply Kneser-Ney smoothing to counts of all orders; return an NGrams object per order."""
    lower_probs = np.array([1.0 / (num_words - 1)])  # of all unigrams' one shorter n-gram
    probs, backoffs = [], []
    for order, counted in enumerate(counts, start=1):
        adjusted = counted.occurrences
        if order < len(counts):
            different = np.bincount(counts[order].suffixes, minlength=len(adjusted))
            adjusted = np.where(counted.at_begin & (order > 1), adjusted, different)
        discounts = _discounts(adjusted, order)[np.minimum(adjusted, 3)]
        sums = np.bincount(counted.histories, adjusted, len(lower_probs))
        masses = np.bincount(counted.histories, discounts, len(lower_probs))
        weights = np.divide(masses, sums, out=np.ones(len(sums)), where=sums > 0)
        own = (adjusted - discounts) / np.where(sums > 0, sums, 1.0)[counted.histories]
        lower_probs = own + weights[counted.histories] * lower_probs[counted.suffixes]
        probs.append(np.log10(lower_probs))
        backoffs.append(np.log10(weights))
    probs[0][BEGIN_NUMBER] = _LOG10_PROB_OF_BEGIN
    backoffs = [*backoffs[1:], np.zeros(len(probs[-1]))]
    return tuple(
        NGrams(counted.keys, prob, backoff)
        for counted, prob, backoff in zip(counts, probs, backoffs, strict=True)
    )


def _discounts(adjusted: NDArray[np.int64], order: int) -> NDArray[np.float64]:
    """The four discounts for the adjusted counts 0, 1, 2, and 3 or more of n-grams of one order."""
    _, n1, n2, n3, n4 = np.bincount(np.minimum(adjusted, 5), minlength=6)[:5].tolist()
    if n1 and n2 and n3:
        y = n1 / (n1 + 2 * n2)
        found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
        if all(discount > 0.0 for discount in found):
            return np.array([0.0, *found])
    log.log(
        f"{order}-grams: {n1}, {n2}, {n3} and {n4} have the adjusted counts 1 to 4, which gives no "
        f"modified Kneser-Ney discounts; using {', '.join(f'{d:g}' for d in _FALLBACK)}"
    )
    return np.array([0.0, *_FALLBACK])
