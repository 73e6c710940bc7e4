"""Phone alignment of lattices: every arc begins and ends at a phone boundary."""

from __future__ import annotations

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.depth_first import top_order
from nnet3tools.fst.lattice import CompactArc, CompactLattice, FinalWeight
from nnet3tools.fst.lattice_conversion import top_sorted
from nnet3tools.fst.lattice_epsilon import better_weight, lattice_without_epsilons
from nnet3tools.nnet.hmm.transition_model import TransitionModel

_ONE: FinalWeight = (0.0, 0.0, ())

_Pending = tuple[int, tuple[int, ...], tuple[int, ...]]
"""An input state, and the transition ids and words that have been read but not written."""


@dataclass(frozen=True)
class PhoneAligned:
    """An aligned lattice, and the first problem found in the input (empty string if none)."""

    lattice: CompactLattice
    problem: str = ""


@dataclass(frozen=True)
class PhoneAligner:
    """Aligns lattices to phone boundaries; the fields are options of lattice-align-phones.

    `is_reordered`: self-loops come last in a phone. `removes_epsilons`: arcs without word are
    joined with others. `has_phone_labels`: arcs have their phone as label instead of a word.
    """

    model: TransitionModel
    is_reordered: bool = True
    removes_epsilons: bool = True
    has_phone_labels: bool = False

    def align(self, lattice: CompactLattice) -> PhoneAligned:
        """The lattice aligned to phones, and a text about the first problem, "" if there is none.

        Each arc has the transition ids of one phone. A word is on the arc of the next phone;
        further words in a row get arcs without transition ids. Then, with `removes_epsilons`, an
        arc without a label is joined with the arcs that follow it. If labels are words, these then
        have several phones, as few phones have a word; with `has_phone_labels`, every phone has a
        label. DataError for unknown transition ids and cycles.
        """
        if not lattice.fst.num_states:
            return PhoneAligned(lattice, "the lattice is empty")
        self.model.check_transition_ids(lattice.strings.ids)
        run = _Alignment(self, with_super_final(lattice))
        aligned = run.result()
        if self.removes_epsilons:
            aligned = lattice_without_epsilons(aligned)
        return PhoneAligned(top_sorted(aligned), run.problem)


def with_super_final(lattice: CompactLattice) -> CompactLattice:
    """The lattice with one final state: epsilon arcs to it replace the former final weights."""
    arcs, finals = lattice.arc_lists(), lattice.final_list()
    ends = [state for state, final in enumerate(finals) if final is not None]
    if len(ends) == 1 and finals[ends[0]] == _ONE and not arcs[ends[0]]:
        return lattice
    for state in ends:
        arcs[state].append((0, *(finals[state] or _ONE), len(arcs)))
    new_finals: list[FinalWeight | None] = [*([None] * len(arcs)), _ONE]
    return CompactLattice.from_lists(lattice.fst.start, new_finals, [*arcs, []])


class _Alignment:
    """Aligns one lattice to phone boundaries; output states have Kaldi's order of discovery."""

    def __init__(self, options: PhoneAligner, lattice: CompactLattice) -> None:
        self._options = options
        transitions = options.model.transitions()
        self._phones = transitions.phones.tolist()
        self._is_final = transitions.is_final.tolist()
        self._is_self_loop = transitions.is_self_loop.tolist()
        self._start = lattice.fst.start
        self._input, self._input_finals = lattice.arc_lists(), lattice.final_list()
        top_order(lattice.fst)  # DataError for a cycle
        self._numbers: dict[_Pending, int] = {}
        self._queue: list[_Pending] = []
        self._arcs: list[list[CompactArc]] = []
        self._finals: list[FinalWeight | None] = []
        self.problem = ""

    def result(self) -> CompactLattice:
        """The aligned lattice, with epsilon arcs: an arc either reads input or writes output."""
        self._number((self._start, (), ()))
        while self._queue:
            self._process(self._queue.pop())
        return CompactLattice.from_lists(0, self._finals, self._arcs)

    def _number(self, pending: _Pending) -> int:
        if (number := self._numbers.get(pending)) is None:
            number = self._numbers[pending] = len(self._arcs)
            self._arcs.append([])
            self._finals.append(None)
            self._queue.append(pending)
        return number

    def _process(self, pending: _Pending) -> None:
        """Write an arc for a complete phone or a surplus word, else follow the input arcs.

        `pending`: input state, and transition ids and words that were read but not written.
        """
        state, ids, words = pending
        number = self._numbers[pending]
        if length := self._phone_length(ids):
            self._write(number, state, (ids[:length], ids[length:]), words)
        elif len(words) > 1:
            self._write(number, state, ((), ids), words)
        else:
            if self._input_finals[state] is not None:
                self._finish(number, pending)
            for word, graph, acoustic, more, target in self._input[state]:
                has_word = word and not self._options.has_phone_labels
                after = (target, ids + more, (*words, word) if has_word else words)
                self._arcs[number].append((0, graph, acoustic, (), self._number(after)))

    def _write(
        self,
        number: int,
        state: int,
        ids: tuple[tuple[int, ...], tuple[int, ...]],
        words: tuple[int, ...],
    ) -> None:
        """Add an arc from output state `number` with the transition ids ids[0] and a label.

        The label is the phone of ids[0] with `has_phone_labels`, else words[0], or 0 if there is no
        word. The arc leads to the output state of input state `state`, ids[1] and words[1:].
        """
        written, rest = ids
        if self._options.has_phone_labels:
            label = self._phones[written[0]]
        else:
            label = words[0] if words else 0
        after = (state, rest, words[1:])
        self._arcs[number].append((label, 0.0, 0.0, written, self._number(after)))

    def _finish(self, number: int, pending: _Pending) -> None:
        """Write the last phone: an arc from output state `number` for the rest in `pending`."""
        state, ids, words = pending
        if not ids and not words:
            self._finals[number] = better_weight(self._finals[number], _ONE)
            return
        if ids:
            count = sum(self._is_final[i] for i in ids)
            if any(self._phones[i] != self._phones[ids[0]] for i in ids):
                self._complain("the transition ids of the last phone are of several phones")
            elif count != 1:
                self._complain(f"the last phone has {count} final transitions, expected 1")
        self._write(number, state, (ids, ()), words)

    def _phone_length(self, ids: tuple[int, ...]) -> int:
        """The number of `ids` that belong to the first phone; 0 if further ids may belong to it."""
        end = next((place for place, i in enumerate(ids, start=1) if self._is_final[i]), 0)
        if any(self._phones[i] != self._phones[ids[0]] for i in ids[: end or None]):
            self._complain(f"phone {self._phones[ids[0]]} does not reach its final transition")
        if not end:
            return 0
        while self._options.is_reordered and end < len(ids) and self._is_self_loop[ids[end]]:
            end += 1
        return end if end < len(ids) else 0

    def _complain(self, problem: str) -> None:
        """Keep the text of a problem in `self.problem`, unless an earlier problem is there."""
        self.problem = self.problem or (
            f"{problem} (a lattice that was cut off, of another model, or a wrong --reorder)"
        )
