"""Sweep a program's tables: drop what no command names, merge what is equal, close the gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.nnet.indexes import IntArray
from nnet3tools.program.commands import Command, NoOperation
from nnet3tools.program.computation import Computation

__all__ = ["remove_no_operations", "renumber"]


_TABLES = ("Submatrix", "Indexes", "IndexesMulti", "IndexesRanges", "Memo")
"""The kinds of operands that are renumbered."""


_renumbered_cache: dict[type[Command], tuple[tuple[str, str], ...]] = {}


def _renumbered_operands(cls: type[Command]) -> tuple[tuple[str, str], ...]:
    """(name, kind) of a command's operands that are renumbered."""
    if (found := _renumbered_cache.get(cls)) is None:
        found = tuple((name, kind) for name, kind in cls.OPERANDS.items() if kind in _TABLES)
        _renumbered_cache[cls] = found
    return found


def _used_operands(commands: Iterable[Command]) -> dict[str, list[int]]:
    """For each kind of operand the values that occur, as often as they do, in order."""
    used: dict[str, list[int]] = {kind: [] for kind in _TABLES}
    for command in commands:
        for name, kind in _renumbered_operands(type(command)):
            used[kind].append(getattr(command, name))
    return used


def remove_no_operations(computation: Computation) -> Computation:
    """The program without the NoOperation commands that passes leave behind."""
    out = computation.copy()
    out.commands = [c for c in computation.commands if type(c) is not NoOperation]
    return out


def renumber(computation: Computation) -> Computation:
    """The same program with matrices, submatrices, index lists and memos renumbered.

    What is unused goes; equal submatrices and equal index lists become one (of Kaldi's
    RenumberComputation, precomputed indexes excepted: those stay where they are there, too).
    """
    out = computation.copy()
    tables: dict[str, Sequence[int]] = {}
    operands = _used_operands(out.commands)
    multi_used = set(operands["IndexesMulti"])
    used_submatrices = _used_submatrices(out, operands["Submatrix"], multi_used)
    tables["Submatrix"] = _renumber_matrices(out, used_submatrices)
    to_new = np.asarray(tables["Submatrix"], np.int32)
    for i in multi_used:
        pairs = out.indexes_multi[i].copy()
        named = pairs[:, 0] >= 0
        pairs[named, 0] = to_new[pairs[named, 0]]
        out.indexes_multi[i] = pairs
    for kind, field in _INDEX_TABLES.items():
        old = getattr(out, field)
        used = set(operands[kind])
        tables[kind], kept = _compacted(range(len(old)), used, _content_of(old))
        setattr(out, field, [old[i] for i in kept])
    tables["Memo"] = _memo_table(operands["Memo"])
    out.commands = [_renumbered(command, tables) for command in out.commands]
    return out


def _content_of(arrays: list[IntArray]) -> Callable[[int], Hashable]:
    return lambda i: arrays[i].tobytes()


_INDEX_TABLES = {
    "Indexes": "indexes",
    "IndexesMulti": "indexes_multi",
    "IndexesRanges": "indexes_ranges",
}


def _used_submatrices(
    computation: Computation, operands: Iterable[int], multi_used: Iterable[int]
) -> set[int]:
    used = set(operands)
    columns = [computation.indexes_multi[i][:, 0] for i in multi_used]
    if columns:
        used.update(np.unique(np.concatenate(columns)).tolist())
    return used - {-1}


def _renumber_matrices(computation: Computation, used: set[int]) -> list[int]:
    """Compact submatrices and matrices in place; returns old submatrix -> new (-1: gone)."""
    submatrices = computation.submatrices
    used = used | {0}
    to_new, kept = _compacted(range(len(submatrices)), used, submatrices.__getitem__)
    matrices_used = {submatrices[s].matrix_index for s in kept} | {0}
    matrix_to_new, matrices_kept = _compacted(
        range(len(computation.matrices)), matrices_used, lambda m: m
    )
    computation.submatrices = [
        submatrices[s]._replace(matrix_index=matrix_to_new[submatrices[s].matrix_index])
        for s in kept
    ]
    computation.matrices = [computation.matrices[m] for m in matrices_kept]
    if computation.matrix_debug_info:
        computation.matrix_debug_info = [computation.matrix_debug_info[m] for m in matrices_kept]
    return to_new


def _compacted(
    old: range, used: set[int], content: Callable[[int], Hashable]
) -> tuple[list[int], list[int]]:
    """(old number -> new number or -1, the old numbers that are kept), equal contents joined."""
    first: dict[Hashable, int] = {}
    kept: list[int] = []
    to_new = [-1] * len(old)
    for i in old:
        if i in used:
            key = content(i)
            if key not in first:
                first[key] = len(kept)
                kept.append(i)
            to_new[i] = first[key]
    return to_new, kept


def _memo_table(memos: Iterable[int]) -> list[int]:
    """Old memo -> new, numbered by first use; a memo must be both made and used."""
    uses = Counter(memo for memo in memos if memo > 0)
    wrong = [memo for memo, count in uses.items() if count != 2]
    if wrong:
        raise ProgramError(f"memo {wrong[0]} is not made once and used once")
    table = [-1] * (max(uses, default=0) + 1)
    table[0] = 0
    for new, memo in enumerate(uses, start=1):
        table[memo] = new
    return table


def _renumbered(command: Command, tables: Mapping[str, Sequence[int]]) -> Command:
    changes = {}
    for name, kind in _renumbered_operands(type(command)):
        old = getattr(command, name)
        if (new := tables[kind][old]) != old:
            changes[name] = new
    return command.replace(**changes) if changes else command
