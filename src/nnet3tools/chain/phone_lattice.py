"""Phone lattices, as lattice-align-phones --replace-output-symbols=true writes them.

Of Kaldi's CompactLattice only what supervisions need is kept: phones, graph costs, and how many
frames each arc has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.fst import Fst
from nnet3tools.fst.lattice_files import COMPACT_LATTICE
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader


@dataclass(frozen=True)
class PhoneLattice:
    """A phone acceptor with graph costs, and the time that its arcs take.

    `lengths` (A,) are the numbers of frames of the arcs, `final_lengths` (N,) those after a
    final state.
    """

    fst: Fst
    lengths: NDArray[np.int64]
    final_lengths: NDArray[np.int64]

    def times(self) -> tuple[NDArray[np.int64], int]:
        """The frame of each state, (N,), and the number of frames.

        DataError unless states are ordered by time, each arc has a phone, all paths to a state have
        one length, and final states are at the end.
        """
        fst = self.fst
        if not fst.num_states:
            raise DataError("the lattice is empty")
        if fst.start != 0 or (fst.nextstates <= fst.sources).any():
            raise DataError("the lattice is not in topological order from state 0 on")
        if (fst.ilabels == 0).any():
            raise DataError("the lattice has an epsilon arc, expected a phone on each")
        times = np.full(fst.num_states, -1, np.int64)
        times[0] = 0
        arcs = zip(
            fst.sources.tolist(), fst.nextstates.tolist(), self.lengths.tolist(), strict=True
        )
        for source, target, length in arcs:
            if times[target] < 0:
                times[target] = times[source] + length
            elif times[target] != times[source] + length:
                raise DataError(f"paths to state {target} of the lattice differ in length")
        finals = np.flatnonzero(fst.is_final & (times >= 0))
        if not len(finals):
            raise DataError("the lattice has no path to a final state")
        end = int((times[finals] + self.final_lengths[finals]).max())
        if (times[finals] != end).any():
            raise DataError(
                "the lattice has a final state before its end: is it aligned to phones?"
            )
        return times, end


def _read(reader: Reader) -> PhoneLattice:
    lattice = COMPACT_LATTICE.read(reader)
    lengths = lattice.strings.lengths
    num_arcs = lattice.fst.num_arcs
    return PhoneLattice(lattice.fst, lengths[:num_arcs], lengths[num_arcs:])


PHONE_LATTICE: Holder[PhoneLattice] = Holder("a lattice", _read, has_header=False)
"""The holder of tables of compact lattices, of which phones, costs and lengths are kept."""
