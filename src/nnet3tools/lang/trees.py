"""Initial trees: monophones, and left biphones (gmm-init-*.cc).

They are tables indexed by phone; no statistics are needed, except that rare biphones can share
pdfs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from nnet3tools.errors import DataError, naming
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io import log
from nnet3tools.io.files import read_text_lines
from nnet3tools.lang.symbols import read_sets
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.hmm.tree import (
    PDF_CLASS_KEY,
    ConstantMap,
    ContextDependency,
    EventMap,
    SplitMap,
    TableMap,
)
from nnet3tools.number_text import parse_counts

PhoneSets = Sequence[Sequence[int]]
"""Sets of phones that share pdfs, each set sorted."""


def read_shared_phones(rxfilename: str, topology: HmmTopology) -> list[list[int]]:
    """Read sets of phones that share pdfs, one per line; "": a set for each phone of `topology`."""
    if not rxfilename:
        return [[phone] for phone in topology.phones.tolist()]
    sets = [sorted(phones) for phones in read_sets(rxfilename)]
    with naming(rxfilename):
        _check_phones(sets, topology)
    return sets


def _check_phones(sets: PhoneSets, topology: HmmTopology) -> None:
    phones = [phone for phone_set in sets for phone in phone_set]
    if not phones or len(set(phones)) < len(phones):
        raise DataError("expected sets of phones, each phone in one of them")
    if unknown := sorted(set(phones) - set(topology.phones.tolist())):
        raise DataError(f"phone {unknown[0]} is none of the topology's")


# -- monophones


def monophone_tree(sets: PhoneSets, topology: HmmTopology) -> ContextDependency:
    """The tree without context: a pdf for each pdf class of each phone set, in order of sets."""
    return ContextDependency(1, 0, _monophone_map(sets, topology, count()))


def _monophone_map(sets: PhoneSets, topology: HmmTopology, pdfs: Iterator[int]) -> EventMap:
    """The map from phone and pdf class to pdf, like Kaldi's GetStubMap.

    It is a table by phone if each set has one phone, else a binary tree. `pdfs` yields pdf numbers.
    """
    if len(sets) == 1:
        num_classes = max(topology.num_pdf_classes(phone) for phone in sets[0])
        return _by_class([next(pdfs) for _ in range(num_classes)])
    largest = max(max(phone_set) for phone_set in sets)
    if max(map(len, sets)) == 1 and len(sets) <= 2 * largest:
        maps = {phones[0]: _monophone_map([phones], topology, pdfs) for phones in sets}
        return TableMap.of(0, maps)
    half = len(sets) // 2
    first = frozenset(phone for phones in sets[:half] for phone in phones)
    yes = _monophone_map(sets[:half], topology, pdfs)
    return SplitMap(0, first, yes, _monophone_map(sets[half:], topology, pdfs))


def _by_class(pdfs: Sequence[int]) -> TableMap:
    return TableMap(PDF_CLASS_KEY, tuple(map(ConstantMap, pdfs)))


# -- biphones


@dataclass(frozen=True)
class PhoneCounts:
    """Counts of phones, and of pairs (left phone, phone), in the training data."""

    phones: Mapping[int, int] = field(default_factory=dict)
    pairs: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def load(cls, rxfilename: str) -> PhoneCounts:
        """Read lines `left-phone phone count` and `phone count`; DataError for other lines."""
        phones: dict[int, int] = {}
        pairs: dict[tuple[int, int], int] = {}
        for number, line in enumerate(read_text_lines(rxfilename), start=1):
            numbers = parse_counts(line.split()) or []
            if len(numbers) not in (2, 3):
                raise DataError(f"{rxfilename}:{number}: Bad line in phone stats file: {line[:60]}")
            *key, number_of_times = numbers
            if len(key) == 2:
                pairs[key[0], key[1]] = number_of_times
            else:
                phones[key[0]] = number_of_times
        return cls(phones, pairs)


@dataclass
class _BiphonePdfs:
    """Assigns pdfs to pairs of phone sets; rare pairs share the pdfs of the phone alone.

    Pairs seen less than `min_pair_count` times are rare. Phones seen at most `min_phone_count`
    times share one list of pdfs. `size` is the number of pdf classes, `numbers` yields new pdfs.
    """

    counts: PhoneCounts | None
    min_pair_count: int
    min_phone_count: int
    size: int
    numbers: Iterator[int] = field(default_factory=count)
    _of_phone: dict[int, list[int]] = field(default_factory=dict)
    _of_any: list[int] = field(default_factory=list)

    def new(self) -> list[int]:
        """Make a list of new pdf numbers, one for each pdf class."""
        return [next(self.numbers) for _ in range(self.size)]

    def of(self, left: int, phone: int) -> list[int]:
        """The list of pdfs of `phone` after `left`; both are the first phones of their sets."""
        if self.counts is None or self.size == 1:
            return self.new()
        if self.counts.pairs.get((left, phone), 0) >= self.min_pair_count:
            return self.new()
        if self.counts.phones.get(phone, 0) > self.min_phone_count:
            if phone not in self._of_phone:
                self._of_phone[phone] = self.new()
            return self._of_phone[phone]
        if not self._of_any:
            self._of_any = self.new()
        return self._of_any


def biphone_tree(
    sets: PhoneSets,
    topology: HmmTopology,
    context_independent: Sequence[int] = (),
    counts: PhoneCounts | None = None,
    min_biphone_count: int = 100,
    min_monophone_count: int = 20,
) -> ContextDependency:
    """Make a tree of left biphones: pdfs for each phone set after each other set or at the start.

    Phones in `context_independent` have pdfs that do not depend on the left phone. If `counts` is
    given, biphones with fewer than `min_biphone_count` occurrences share the pdfs of their phone,
    and all phones with at most `min_monophone_count` share theirs. DataError unless all phones have
    one pdf class, or all have two.
    """
    sizes = {topology.num_pdf_classes(phone) for phone in topology.phones.tolist()}
    if len(sizes) > 1 or not sizes <= {1, 2}:
        raise DataError(
            f"the topology has phones with {sorted(sizes)} pdf classes: expected 1, or 2, for all"
        )
    alone = sorted(context_independent)
    sets = [s for s in ([p for p in phones if p not in alone] for phones in sets) if s]
    pdfs = _BiphonePdfs(counts, min_biphone_count, min_monophone_count, sizes.pop())
    maps: dict[int, EventMap] = {phone: _by_class(pdfs.new()) for phone in alone}
    for phones in sets:
        edge = pdfs.new()
        lefts = {0: edge}
        if pdfs.size == 2:
            lefts |= dict.fromkeys(alone, edge)
        for left_phones in sets:
            lefts |= dict.fromkeys(left_phones, pdfs.of(left_phones[0], phones[0]))
        leaves: dict[int, EventMap] = {
            left: _by_class(numbers) if pdfs.size == 2 else ConstantMap(numbers[0])
            for left, numbers in lefts.items()
        }
        table = TableMap.of(0, leaves)
        maps |= dict.fromkeys(phones, table)
    log.log(f"Num PDFs: {next(pdfs.numbers)}")
    return ContextDependency(2, 1, TableMap.of(1, maps))
