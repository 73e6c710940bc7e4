"""Where matrices, submatrices and index lists of a program were before passes renumbered them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.program.computation import Computation

__all__ = ["LIST_TABLES", "Origins"]

Ints = NDArray[np.int64]

LIST_TABLES = ("indexes", "indexes_multi", "indexes_ranges")
"""The tables of index lists."""


class Origins:
    """The merges and renumberings of a program, told as they happen, in its numbers of before."""

    def __init__(self, computation: Computation) -> None:
        self.matrices = np.arange(len(computation.matrices))
        """By matrix now the one that it was."""
        self.submatrices = np.arange(len(computation.submatrices))
        """By submatrix now the first that it was."""
        self.lists: dict[str, list[int]] = {
            name: list(range(len(getattr(computation, name)))) for name in LIST_TABLES
        }
        """By table and index list now the first that it was."""
        self.new_of_old = np.arange(len(computation.submatrices))
        """By submatrix before its number now; -1 for those that are gone."""
        self._merges: list[tuple[Ints, Ints]] = []
        """In turn (submatrices that stayed, matrices that became the same part of theirs)."""

    # -- what happens

    def merge(self, keep: Ints, discarded: Ints) -> None:
        """Matrices become part of the matrices of others: all of them the submatrix `keep`."""
        self._merges.append((self.submatrices[keep], self.matrices[discarded]))

    def renumber_submatrices(self, to_new: Ints, kept: Ints, matrices_kept: Ints) -> None:
        """Submatrices get the numbers `to_new` (-1: gone); the first of each was `kept`."""
        self.submatrices, self.matrices = self.submatrices[kept], self.matrices[matrices_kept]
        known = self.new_of_old >= 0
        self.new_of_old[known] = to_new[self.new_of_old[known]]

    def renumber_lists(self, table: str, kept: list[int]) -> None:
        """Of the index lists of one table these are left."""
        self.lists[table] = [self.lists[table][i] for i in kept]

    # -- what has come of it

    def final_places(self, table: Ints) -> tuple[Ints, Ints, Ints]:
        """The matrix before in which each has ended, and at which row and column, (matrices,) each.

        `table` are the submatrices before, of this program or of one that is rewritten like it.
        """
        size = int(table[:, 0].max()) + 1
        matrix, shift = np.arange(size), np.zeros((size, 2), np.int64)
        for keep, discarded in self._merges:
            of_keep = table[keep, 0]
            become, by = np.arange(size), np.zeros((size, 2), np.int64)
            become[discarded] = matrix[of_keep]
            by[discarded] = table[keep, 1::2] + shift[of_keep]
            # What became part of the discarded ones goes with them.
            shift += by[matrix]
            matrix = become[matrix]
        return matrix, shift[:, 0], shift[:, 1]
