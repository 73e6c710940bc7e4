"""The context of a pass: network, options, facts of the request."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass, field, replace
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.analysis import Analyst
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation

Ints = NDArray[np.int64]

LIST_TABLES = ("indexes", "indexes_multi", "indexes_ranges")
"""The tables of index lists."""


class Origins:
    """Records how passes merge and renumber matrices, in the numbers of the original program."""

    def __init__(self, computation: Computation) -> None:
        self.matrices = np.arange(len(computation.matrices))
        """Matrix -> original matrix."""
        self.submatrices = np.arange(len(computation.submatrices))
        """Submatrix -> first original submatrix."""
        self.lists: dict[str, list[int]] = {
            name: list(range(len(getattr(computation, name)))) for name in LIST_TABLES
        }
        """Table -> index list -> first original index list."""
        self.new_of_old = np.arange(len(computation.submatrices))
        """Original submatrix -> present number; -1 if it was removed."""
        self._merges: list[tuple[Ints, Ints]] = []
        """In order: (submatrices that stayed, matrices that became their parts)."""

    # -- recording changes

    def merge(self, keep: Ints, discarded: Ints) -> None:
        """Record that matrix discarded[i] became the submatrix keep[i] of another matrix."""
        self._merges.append((self.submatrices[keep], self.matrices[discarded]))

    def renumber_submatrices(self, to_new: Ints, kept: Ints, matrices_kept: Ints) -> None:
        """Record new submatrix numbers `to_new` (-1: removed), by old number.

        `kept` has the old number of each remaining submatrix, `matrices_kept` that of each matrix.
        """
        self.submatrices, self.matrices = self.submatrices[kept], self.matrices[matrices_kept]
        known = self.new_of_old >= 0
        self.new_of_old[known] = to_new[self.new_of_old[known]]

    def renumber_lists(self, table: str, kept: list[int]) -> None:
        """Record that only the lists numbered `kept` remain, in this order, in a table.

        `table` is the name of a table of index lists, such as "indexes_multi".
        """
        self.lists[table] = [self.lists[table][i] for i in kept]

    # -- results

    def final_places(self, table: Ints) -> tuple[Ints, Ints, Ints]:
        """(matrix, row, column): where each original matrix is after all merges.

        Matrices have their original numbers. `table` (submatrices, 5) are the original submatrices,
        or those of a program that is rewritten in the same way.
        """
        size = int(table[:, 0].max()) + 1
        matrix, shift = np.arange(size), np.zeros((size, 2), np.int64)
        for keep, discarded in self._merges:
            of_keep = table[keep, 0]
            become, by = np.arange(size), np.zeros((size, 2), np.int64)
            become[discarded] = matrix[of_keep]
            by[discarded] = table[keep, 1::2] + shift[of_keep]
            # Parts of discarded submatrices move with them.
            shift += by[matrix]
            matrix = become[matrix]
        return matrix, shift[:, 0], shift[:, 1]


@dataclass(frozen=True)
class PassContext:
    """The context in which passes rewrite a program.

    `max_output_time` is the largest t of the request's outputs, None without outputs. `looped`: the
    program is to become a loop. `origins`, if given, records merges and renumbering, `components`
    has the facts about the network's components.
    """

    nnet: Nnet
    options: OptimizeOptions = field(default_factory=OptimizeOptions)
    max_output_time: int | None = None
    looped: bool = False
    origins: Origins | None = None
    components: ComponentTable | None = None

    @cached_property
    def analyst(self) -> Analyst:
        """The cache, shared by all passes, of the analysis of the latest program."""
        return Analyst(self.nnet, self.components)

    def with_origins(self, origins: Origins) -> PassContext:
        """A copy with the same Analyst; its passes record merges and new numbers in `origins`."""
        context = replace(self, origins=origins)
        vars(context)["analyst"] = self.analyst  # where cached_property looks
        return context


Transform = Callable[[Computation, PassContext], Computation]
"""A pass: maps a valid program to a valid program with the same results."""
