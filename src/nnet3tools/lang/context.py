"""Replace phones by phones in context (Kaldi's InverseContextFst).

Disambiguation symbols, which keep graphs determinizable, are copied.
"""

from __future__ import annotations

from collections.abc import Collection

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst
from nnet3tools.nnet.hmm.topology import HmmTopology
from nnet3tools.nnet.hmm.tree import ContextDependency

Window = tuple[int, ...]
"""A phone and its neighbours; 0 stands for positions before the first and after the last phone.

The window of a disambiguation symbol is its negated number. If windows contain following phones,
(0,) stands for the symbol that is read before the first phone.
"""

_WIDEST = 100


@dataclass(frozen=True)
class ContextGraph:
    """An FST over phones in context: input label j means the phone sequence `windows[j]`."""

    fst: Fst
    windows: list[Window]


def is_disambig(window: Window) -> bool:
    """Whether a window (phones in context) stands for a disambiguation symbol instead of phones."""
    return len(window) == 1 and window[0] <= 0


def in_context(
    phones: Fst, tree: ContextDependency, topology: HmmTopology, disambig: Collection[int] = ()
) -> ContextGraph:
    """Replace the input phones of an FST by phones in context, with the tree's context width.

    DataError for an input label that is neither a phone of `topology` nor in `disambig`.
    """
    if tree.width > _WIDEST:
        raise DataError(f"the tree's context of {tree.width} phones is too wide")
    known = set(topology.phones.tolist())
    if both := known & set(disambig):
        raise DataError(f"Disambiguation symbol {min(both)} is also a phone.")
    for phone in set(phones.ilabels.tolist()) - {0} - set(disambig):
        if phone not in known:
            raise DataError(f"phone {phone} is none of the topology's")
    end_symbol = max(known | set(disambig)) + 1
    return _Expansion(phones, tree, frozenset(disambig), end_symbol).graph()


class _Expansion:
    """Composes a phone FST with a context FST; a state of the latter is the last phones read."""

    def __init__(
        self, phones: Fst, tree: ContextDependency, disambig: frozenset[int], end_symbol: int
    ) -> None:
        self._disambig = disambig
        self._width, self._central, self._end = tree.width, tree.central, end_symbol
        arcs, finals = phones.arc_lists(), phones.finals.tolist()
        if self._looks_ahead:  # the last phones have end symbols as their right context
            end = len(arcs)
            for state, final in enumerate(finals):
                if final != NOT_FINAL:
                    arcs[state].append((end_symbol, 0, final, end))
            arcs, finals = [*arcs, [(end_symbol, 0, 0.0, end)]], [*finals, 0.0]
        self._arcs, self._finals = arcs, finals
        self._start = phones.start
        self._labels: dict[Window, int] = {(): 0}
        # A phone's window is complete some phones later; a disambiguation symbol's is at once.
        early = self._looks_ahead and bool(disambig)
        self._before_first = self._labels.setdefault((0,), 1) if early else 0

    @property
    def _looks_ahead(self) -> bool:
        """Whether windows contain phones after the central phone."""
        return self._central < self._width - 1

    def graph(self) -> ContextGraph:
        """The composed graph; a state is a pair (last phones read, state of the phone FST)."""
        pairs: list[tuple[Window, int]] = [((0,) * (self._width - 1), self._start)]
        numbers = {pairs[0]: 0}
        arcs: list[list[ArcTuple]] = []
        finals: list[float] = []
        for read, state in pairs:  # the loop appends pairs
            found: list[ArcTuple] = []
            for phone, olabel, weight, target in self._arcs[state]:
                step = (read, 0) if phone == 0 else self._step(read, phone)
                if step is None:
                    continue
                pair = (step[0], target)
                if (number := numbers.get(pair)) is None:
                    number = numbers[pair] = len(pairs)
                    pairs.append(pair)
                found.append((step[1], olabel, weight, number))
            arcs.append(found)
            complete = not self._looks_ahead or read[self._central] == self._end
            finals.append(self._finals[state] if complete else NOT_FINAL)
        return ContextGraph(Fst.from_lists(0, finals, arcs), list(self._labels))

    def _step(self, read: Window, phone: int) -> tuple[Window, int] | None:
        """(last phones read, label of the window now complete) after `phone`; None if forbidden."""
        if phone in self._disambig:
            return read, self._labels.setdefault((-phone,), len(self._labels))
        if phone == self._end:
            if not self._looks_ahead or read[self._central] == self._end:
                return None
        elif read and read[-1] == self._end:
            return None
        whole = (*read, phone)
        window = tuple(
            0 if i > self._central and p == self._end else p for i, p in enumerate(whole)
        )
        if window[self._central] == 0:
            return whole[1:], self._before_first
        return whole[1:], self._labels.setdefault(window, len(self._labels))
