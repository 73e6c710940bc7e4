"""Operands of commands: kinds, accesses, names in text, and tables for checks."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nnet3tools.graph.computation_graph import sorted_unique
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation

# Kinds of operands; the decorator of commands looks at these names.
Submatrix = int
"""Number of a submatrix; 0 means none, if the command allows it."""
Indexes = int
"""Position in `Computation.indexes`."""
IndexesMulti = int
"""Position in `Computation.indexes_multi`."""
IndexesRanges = int
"""Position in `Computation.indexes_ranges`."""
Precomputed = int
"""Position in `Computation.component_precomputed_indexes`; 0 for none."""
Component = int
"""Number of a component of the network."""
Node = int
"""Number of a node of the network."""
Memo = int
"""Number that joins a Propagate to the Backprop that uses its memo; 0 for none."""
Position = int
"""Position of a command in the program."""
Alpha = float
"""A number that is not an integer, stored as Kaldi's alpha."""


class AccessType(enum.IntFlag):
    """A command's access to a submatrix; READ_WRITE if the result depends on old contents."""

    READ = 1
    WRITE = 2
    READ_WRITE = 3


class Access(NamedTuple):
    """An access of one command to one submatrix."""

    submatrix: int
    type: AccessType


Ints = NDArray[np.int64]


class Accesses(NamedTuple):
    """Accesses to submatrices by some commands of a program; submatrix 0 means none.

    Command commands[i] accesses submatrices[i]. `kinds` is the AccessType of each access, or of
    all accesses.
    """

    commands: Ints
    submatrices: Ints
    kinds: Ints | AccessType


AccessMap = dict[str, AccessType]


class Names(Protocol):
    """Interface that gives texts for the parts of a program, to print a command."""

    def submatrix(self, index: int) -> str:
        """A text such as "m3" or "m3(0:10, 5:9)" for submatrix number `index`; "[]" for 0."""

    def dim(self, index: int) -> tuple[int, int]:
        """The numbers of rows and columns of a submatrix."""

    def indexes(self, index: int) -> str:
        """The text of a list of row indexes, given by number, with runs shortened."""

    def indexes_multi(self, index: int) -> str:
        """The text of a list of (submatrix, row) pairs, given by number, as rows of matrices."""

    def indexes_ranges(self, index: int) -> str:
        """The text of a list of row ranges, given by number, last row included."""

    def component(self, index: int) -> str:
        """The name of a component."""

    def node(self, index: int) -> str:
        """The name of a node."""

    @property
    def need_model_derivative(self) -> bool:
        """Whether the program computes a derivative of the model."""


class Tables(Protocol):
    """Interface to the tables of a program that the method `problem` of a command may read."""

    computation: Computation
    nnet: Nnet
    components: ComponentTable
    submatrix_table: Ints
    """(submatrices, 5): `computation.submatrix_table()`."""

    def overlap(self, a: int, b: int) -> bool:
        """Whether two submatrices share elements."""

    def same(self, a: int, b: int) -> bool:
        """Whether two submatrices are the same block of the same matrix."""

    def rows(self, submatrix: int) -> int:
        """The number of rows of a submatrix."""

    def cols(self, submatrix: int) -> int:
        """The number of columns of a submatrix."""

    def size_problem(self, a: int, b: int) -> str:
        """A message if two submatrices differ in size, else ""."""

    def overlap_problem(self, dest: int, src: int) -> str:
        """A message if a source shares elements with its destination, else ""."""


def listed_submatrices(lists: Sequence[np.ndarray]) -> tuple[Ints, Ints]:
    """The submatrices that each list of (submatrix, row) pairs names, without -1 (none).

    Returns (list, submatrix), both (M,), with each submatrix once for each list, sorted.
    """
    if not lists:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    which = np.repeat(np.arange(len(lists)), [len(pairs) for pairs in lists])
    submatrices = np.concatenate([pairs[:, 0] for pairs in lists]).astype(np.int64)
    # Few distinct values in long runs are the rule: compare neighbours first, then sort the rest.
    first = np.ones(len(which), bool)
    first[1:] = (submatrices[1:] != submatrices[:-1]) | (which[1:] != which[:-1])
    first &= submatrices != -1
    width = int(submatrices.max(initial=0)) + 1
    return np.divmod(sorted_unique(which[first] * width + submatrices[first]), width)
