"""Weighted finite-state transducers over the tropical semiring, as arrays (OpenFst's StdArc)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.fst.std_sort import std_sort_order

EPSILON = 0
"""The label of an arc that reads or writes nothing."""

NO_STATE = -1
"""The start state of an FST without states."""

NOT_FINAL = float("inf")
"""The final weight of a state that is not final (the semiring's zero)."""

ArcTuple = tuple[int, int, float, int]
"""Input label, output label, weight (a cost: a negated log-probability), next state."""

_INT, _FLOAT = np.int32, np.float32


@dataclass(frozen=True)
class Fst:
    """An FST with states 0 to N - 1; the arcs of state s are offsets[s] to offsets[s + 1] - 1.

    `finals` (N,) are final weights, infinite for states that are not final. `ilabels`, `olabels`,
    `weights` and `nextstates` (A,) describe the arcs, grouped by state. Weights are costs. In an
    acceptor both labels may be the same array. `properties`: OpenFst's bits in the header, or 0.
    """

    start: int
    finals: NDArray[np.float32]
    offsets: NDArray[np.int64]
    ilabels: NDArray[np.int32]
    olabels: NDArray[np.int32]
    weights: NDArray[np.float32]
    nextstates: NDArray[np.int32]
    properties: int = 0

    # constructors

    @classmethod
    def empty(cls) -> Fst:
        """The FST without states, which accepts nothing."""
        none = np.zeros(0, _INT)
        offsets = np.zeros(1, np.int64)
        return cls(NO_STATE, np.zeros(0, _FLOAT), offsets, none, none, np.zeros(0, _FLOAT), none)

    @classmethod
    def from_arcs(
        cls,
        start: int,
        finals: NDArray[np.float32],
        sources: NDArray[np.integer],
        ilabels: NDArray[np.integer],
        weights: NDArray[np.floating],
        nextstates: NDArray[np.integer],
        olabels: NDArray[np.integer] | None = None,
    ) -> Fst:
        """Make an FST from arrays over arcs, in any order, and the final weights of states.

        The arcs leave `sources`. Without `olabels` the FST is an acceptor.
        """
        order = np.argsort(sources, kind="stable")
        inputs = np.asarray(ilabels, _INT)[order]
        outputs = inputs if olabels is None else np.asarray(olabels, _INT)[order]
        counts = np.bincount(sources, minlength=len(finals))
        return cls(
            start,
            np.asarray(finals, _FLOAT),
            np.concatenate([[0], np.cumsum(counts)]),
            inputs,
            outputs,
            np.asarray(weights, _FLOAT)[order],
            np.asarray(nextstates, _INT)[order],
        )

    @classmethod
    def from_lists(
        cls, start: int, finals: Sequence[float], arcs: Sequence[Sequence[ArcTuple]]
    ) -> Fst:
        """Make an FST from each state's final weight and arcs.

        An arc is (input label, output label, weight, next state).
        """
        offsets = np.zeros(len(arcs) + 1, np.int64)
        np.cumsum([len(arcs_of_state) for arcs_of_state in arcs], out=offsets[1:])
        flat = [arc for arcs_of_state in arcs for arc in arcs_of_state]
        columns: Iterable[tuple] = zip(*flat, strict=True) if flat else ((), (), (), ())
        ilabels, olabels, weights, nextstates = columns
        inputs = np.array(ilabels, _INT)
        outputs = inputs if ilabels == olabels else np.array(olabels, _INT)
        return cls(
            start if len(arcs) else NO_STATE,
            np.array(finals, _FLOAT),
            offsets,
            inputs,
            outputs,
            np.array(weights, _FLOAT),
            np.array(nextstates, _INT),
        )

    @classmethod
    def linear(cls, labels: Sequence[int]) -> Fst:
        """Make the acceptor of one sequence of labels, with weights 0."""
        size = len(labels)
        finals = np.full(size + 1, NOT_FINAL, _FLOAT)
        finals[size] = 0.0
        inputs = np.asarray(labels, _INT)
        offsets = np.minimum(np.arange(size + 2), size)
        return cls(
            *(0, finals, offsets, inputs, inputs),
            *(np.zeros(size, _FLOAT), np.arange(1, size + 1, dtype=_INT)),
        )

    # -- sizes and views

    @property
    def num_states(self) -> int:
        """Number of states (N)."""
        return len(self.finals)

    @property
    def num_arcs(self) -> int:
        """Number of arcs (A)."""
        return len(self.nextstates)

    @property
    def num_bytes(self) -> int:
        """Size of the arrays in bytes."""
        arrays = self.finals, self.offsets, self.ilabels, self.weights, self.nextstates
        shared = self.olabels is self.ilabels
        return sum(array.nbytes for array in arrays) + (0 if shared else self.olabels.nbytes)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of arcs that leave each state, shape (N,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def sources(self) -> NDArray[np.int32]:
        """The state that each arc leaves, shape (A,)."""
        return np.repeat(np.arange(self.num_states, dtype=_INT), self.counts)

    @property
    def is_final(self) -> NDArray[np.bool_]:
        """Mask of the final states, shape (N,)."""
        return self.finals != NOT_FINAL

    @cached_property
    def is_acceptor(self) -> bool:
        """Whether input and output label of each arc are equal."""
        return self.olabels is self.ilabels or bool((self.olabels == self.ilabels).all())

    def arc_lists(self) -> list[list[ArcTuple]]:
        """Each state's arcs as Python tuples: (input label, output label, weight, next state)."""
        weights = self.weights.tolist()
        inputs, nextstates = self.ilabels.tolist(), self.nextstates.tolist()
        outputs = inputs if self.olabels is self.ilabels else self.olabels.tolist()
        flat = list(zip(inputs, outputs, weights, nextstates, strict=True))
        ends = self.offsets.tolist()
        return [flat[begin:end] for begin, end in pairwise(ends)]

    # modified copies

    def projected(self) -> Fst:
        """The acceptor of the input labels."""
        return self.relabelled(self.ilabels)

    def relabelled(self, labels: NDArray[np.int32]) -> Fst:
        """The acceptor with this FST's states and weights, whose arcs have `labels` (A,)."""
        return replace(self, ilabels=labels, olabels=labels, properties=0)

    def scaled(self, scale: float) -> Fst:
        """The FST with all weights multiplied by `scale` (Kaldi's ApplyProbabilityScale)."""
        factor = np.float32(scale)
        finals = self.finals.copy()
        finals[self.is_final] *= factor
        return replace(self, weights=self.weights * factor, finals=finals, properties=0)

    def with_arcs_in(self, order: NDArray[np.intp]) -> Fst:
        """The FST with arc order[i] as arc i; `order` (A,) keeps each state's arcs together."""
        inputs = self.ilabels[order]
        outputs = inputs if self.olabels is self.ilabels else self.olabels[order]
        return replace(
            self,
            ilabels=inputs,
            olabels=outputs,
            weights=self.weights[order],
            nextstates=self.nextstates[order],
            properties=0,
        )

    def with_arcs_only(self, arcs: NDArray[np.bool_] | NDArray[np.integer]) -> Fst:
        """The FST with all states and only the selected arcs: a mask (A,) or increasing indexes."""
        outputs = None if self.olabels is self.ilabels else self.olabels[arcs]
        return Fst.from_arcs(
            self.start,
            self.finals,
            self.sources[arcs],
            self.ilabels[arcs],
            self.weights[arcs],
            self.nextstates[arcs],
            outputs,
        )

    def sorted_by_input(self) -> Fst:
        """The FST with each state's arcs sorted by input, then output label, as by ArcSort."""
        return self._sorted_by(self.ilabels, self.olabels)

    def sorted_by_output(self) -> Fst:
        """The FST with each state's arcs sorted by output, then input label."""
        return self._sorted_by(self.olabels, self.ilabels)

    def _sorted_by(self, first: NDArray[np.int32], second: NDArray[np.int32]) -> Fst:
        keys = first if self.is_acceptor else (first.astype(np.int64) << 32) | second
        return self.with_arcs_in(sort_order(self.sources, keys))

    def without_inputs(self, labels: Sequence[int]) -> Fst:
        """The FST with epsilon in place of these input labels (Kaldi's RemoveSomeInputSymbols)."""
        kept = np.where(np.isin(self.ilabels, labels), np.int32(EPSILON), self.ilabels)
        return replace(self, ilabels=kept, properties=0)

    def with_properties(self, properties: int) -> Fst:
        """The FST with OpenFst's property bits `properties`, which a written file will contain."""
        return replace(self, properties=int(properties))

    # -- checks

    def check_labels(self, num_labels: int, what: str, allow_epsilon: bool = False) -> None:
        """Raise DataError unless this is an acceptor with labels 1 (or 0) to `num_labels`.

        The message calls the FST `what`. `allow_epsilon` allows label 0.
        """
        if not self.is_acceptor:
            at = int(np.flatnonzero(self.ilabels != self.olabels)[0])
            raise DataError(
                f"{what} has an arc that reads {self.ilabels[at]} and writes {self.olabels[at]}: "
                "expected an acceptor"
            )
        least = EPSILON if allow_epsilon else 1
        wrong = np.flatnonzero((self.ilabels < least) | (self.ilabels > num_labels))
        if not len(wrong):
            return
        label, source = self.ilabels[wrong[0]], self.sources[wrong[0]]
        if label == EPSILON:
            raise DataError(f"{what} has an epsilon arc, from state {source}: expected none")
        raise DataError(
            f"{what} has label {label} on an arc from state {source}: expected {least} to "
            f"{num_labels}"
        )


def sort_order(groups: NDArray[np.integer], keys: NDArray[np.integer]) -> NDArray[np.intp]:
    """Indexes that sort by group, then by key; ties in the order of std::sort."""
    order = np.lexsort((keys, groups))
    if not len(order):
        return order
    grouped = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], np.diff(groups[grouped]) != 0]))
    ends = np.append(starts[1:], len(order))
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - begin > 16:  # std::sort is stable for smaller groups
            places = grouped[begin:end]
            order[begin:end] = places[std_sort_order(keys[places].tolist())]
    return order
