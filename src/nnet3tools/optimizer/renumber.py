"""Sweep a program's tables: drop entries that no command names, merge equal ones, close gaps."""

from collections import Counter
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import ProgramError
from nnet3tools.nnet.indexes import IntArray
from nnet3tools.optimizer.pass_context import Origins
from nnet3tools.program.command import operand_names
from nnet3tools.program.commands import Command, NoOperation
from nnet3tools.program.computation import Computation
from nnet3tools.program.groups import CommandGroup, group_commands
from nnet3tools.program.operands import listed_submatrices

Ints = NDArray[np.int64]
_Groups = dict[type[Command], CommandGroup]

_INDEX_TABLES = {
    "Indexes": "indexes",
    "IndexesMulti": "indexes_multi",
    "IndexesRanges": "indexes_ranges",
}
_TABLES = ("Submatrix", *_INDEX_TABLES, "Memo")
"""The kinds of operands that are renumbered."""


def remove_no_operations(computation: Computation) -> Computation:
    """The program without the NoOperation commands that passes leave behind."""
    out = computation.copy()
    out.commands = [c for c in computation.commands if type(c) is not NoOperation]
    return out


def renumber(
    computation: Computation, origins: Origins | None = None, table: Ints | None = None
) -> Computation:
    """A copy of the program with matrices, submatrices, index lists and memos renumbered.

    Unused entries are removed, and equal submatrices and index lists are joined, as by Kaldi's
    RenumberComputation. Precomputed indexes keep their numbers. `origins`, if given, is updated.
    `table`, if given, replaces the table of submatrices.
    """
    out = computation.copy()
    groups = group_commands(out.commands)
    tables: dict[str, Ints] = {}
    multi_used = _distinct(_operands(groups, "IndexesMulti")).tolist()
    listed = [out.indexes_multi[i] for i in multi_used]
    used = np.concatenate([_operands(groups, "Submatrix"), listed_submatrices(listed)[1]])
    to_new = tables["Submatrix"] = _renumber_matrices(out, used[used >= 0], origins, table)
    for i, old_pairs in zip(multi_used, listed, strict=True):
        pairs = old_pairs.copy()
        named = pairs[:, 0] >= 0
        pairs[named, 0] = to_new[pairs[named, 0]]
        out.indexes_multi[i] = pairs
    for kind, field in _INDEX_TABLES.items():
        old: list[IntArray] = getattr(out, field)
        in_use = _distinct(_operands(groups, kind))
        tables[kind], kept = _compacted(len(old), in_use, _content_of(old))
        setattr(out, field, [old[i] for i in kept])
        if origins is not None:
            origins.renumber_lists(field, kept)
    tables["Memo"] = _memo_table(out.commands, groups)
    _renumber_commands(out, groups, tables)
    return out


def _operands(groups: _Groups, kind: str) -> Ints:
    """The operands of a kind such as "Indexes" in all commands of `groups`; repeated, unsorted."""
    columns = [
        group.column(name) for cls, group in groups.items() for name in operand_names(cls, kind)
    ]
    return np.concatenate(columns) if columns else np.empty(0, np.int64)


def _distinct(numbers: Ints) -> Ints:
    """The distinct values of small non-negative numbers, sorted."""
    return np.bincount(numbers).nonzero()[0]


def _content_of(arrays: list[IntArray]) -> Callable[[int], Hashable]:
    return lambda i: arrays[i].tobytes()


def _renumber_matrices(
    computation: Computation, used: Ints, origins: Origins | None, table: Ints | None
) -> Ints:
    """Remove submatrices not in `used`, and matrices without submatrix, in place.

    Returns the new number of each submatrix, -1 if it was removed. `origins`, if given, is updated.
    """
    if table is None:
        table = computation.submatrix_table()
    in_use = _distinct(np.append(used, 0))
    first_equal = first_equal_rows(table[in_use])
    is_first = first_equal == np.arange(len(in_use))
    to_new = np.full(len(table), -1)
    to_new[in_use] = (is_first.cumsum() - 1)[first_equal]
    kept = in_use[is_first]
    table = table[kept]
    matrices_kept = _distinct(table[:, 0])
    table[:, 0] = matrices_kept.searchsorted(table[:, 0])
    computation.set_submatrices(table)
    computation.matrices = [computation.matrices[m] for m in matrices_kept.tolist()]
    if computation.matrix_debug_info:
        debug = computation.matrix_debug_info
        computation.matrix_debug_info = [debug[m] for m in matrices_kept.tolist()]
    if origins is not None:
        origins.renumber_submatrices(to_new, kept, matrices_kept)
    return to_new


def first_equal_rows(table: Ints) -> Ints:
    """(rows,) for each row of a table of five int32 columns, the number of the first equal row."""
    keys = (table[:, 0] << 32 | table[:, 1], table[:, 2] << 32 | table[:, 3], table[:, 4])
    order = np.lexsort(keys)
    new = np.ones(len(table), np.bool_)
    new[1:] = False
    for key in keys:
        ordered = key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    first = np.empty(len(table), np.int64)
    # lexsort is stable: of equal rows the first comes first.
    first[order] = order[new][new.cumsum() - 1]
    return first


def _compacted(size: int, used: Ints, content: Callable[[int], Hashable]) -> tuple[Ints, list[int]]:
    """New numbers for the `used` entries of a table; entries i with equal content(i) are joined.

    Returns ((size,) new number or -1 by old number, old numbers of the entries that remain).
    """
    new_of: dict[Hashable, int] = {}
    kept: list[int] = []
    new: list[int] = []
    for i in used.tolist():
        number = new_of.setdefault(content(i), len(kept))
        if number == len(kept):
            kept.append(i)
        new.append(number)
    to_new = np.full(size, -1)
    to_new[used] = new
    return to_new, kept


def _memo_table(commands: list[Command], groups: _Groups) -> Ints:
    """The new number of each memo; ProgramError unless one command makes it and one uses it."""
    uses = [
        np.array([group.column(name), group.positions])
        for cls, group in groups.items()
        for name in operand_names(cls, "Memo")
    ]
    memos, positions = np.concatenate(uses, axis=1) if uses else np.zeros((2, 0), np.int64)
    memos = memos[np.argsort(positions, kind="stable")]
    counts = Counter(memos[memos > 0].tolist())  # in the order of first use
    if wrong := next((memo for memo, count in counts.items() if count != 2), 0):
        raise ProgramError(f"memo {wrong} is not made once and used once")
    table = np.full(max(counts, default=0) + 1, -1)
    table[[0, *counts]] = np.arange(len(counts) + 1)
    return table


def _renumber_commands(computation: Computation, groups: _Groups, tables: dict[str, Ints]) -> None:
    """Renumber operands in place, old -> tables[kind][old]; `groups` has the commands by class."""
    new_groups: _Groups = {}
    for cls, group in groups.items():
        columns = {
            name: tables[kind][group.column(name)]
            for kind in _TABLES
            for name in operand_names(cls, kind)
        }
        new_groups[cls] = new = group.with_columns(columns) if columns else group
        for position, command in zip(group.positions.tolist(), new.commands, strict=True):
            computation.commands[position] = command
    computation.keep_groups(new_groups)
