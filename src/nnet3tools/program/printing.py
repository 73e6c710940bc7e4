"""A program as text, as NnetComputation::Print of Kaldi has it, and what a pass changes in it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np

from nnet3tools.nnet.indexes import IndexArray, IntArray
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.computation import Computation
from nnet3tools.program.lifetimes import max_memory_use

_MAX_LENGTH = 200
"""Kaldi shortens longer texts to their first and last hundred characters."""
_ENDS = 60
"""Items of a long list that are printed at each end; 60 items have a hundred characters."""


class ProgramNames:
    """The texts of matrices, indexes and nodes in one program, to print commands."""

    def __init__(self, computation: Computation, nnet: Nnet) -> None:
        self._computation, self._nnet = computation, nnet

    @property
    def need_model_derivative(self) -> bool:
        """Whether the program computes a derivative of the model."""
        return self._computation.need_model_derivative

    def submatrix(self, index: int) -> str:
        """A text such as "m3" for a whole matrix, or "m3(0:10, 5:9)" with last row and column."""
        if index == 0:
            return "[]"
        info = self._computation.submatrices[index]
        if self._computation.is_whole_matrix(index):
            return f"m{info.matrix_index}"
        return (
            f"m{info.matrix_index}({info.row_offset}:{info.row_offset + info.num_rows - 1}, "
            f"{info.col_offset}:{info.col_offset + info.num_cols - 1})"
        )

    def dim(self, index: int) -> tuple[int, int]:
        """The numbers of rows and columns of a submatrix."""
        info = self._computation.submatrices[index]
        return info.num_rows, info.num_cols

    def indexes(self, index: int) -> str:
        """The text of row indexes (of CopyRows or AddRows), given the number of their list."""
        return integers_text(self._computation.indexes[index])

    def indexes_multi(self, index: int) -> str:
        """The text of a Multi command's list, given by number, as rows of matrices."""
        pairs = self._computation.indexes_multi[index]
        return f"[{_join_ends(len(pairs), ',', lambda i: self._row(*pairs[i].tolist()))}]"

    def _row(self, submatrix: int, row: int) -> str:
        if submatrix == -1:
            return "NULL"
        matrix, row_offset, _, col_offset, num_cols = self._computation.submatrices[submatrix]
        if col_offset == 0 and num_cols == self._computation.matrices[matrix].num_cols:
            return f"m{matrix}({row_offset + row},:)"
        return f"m{matrix}({row_offset + row},{col_offset}:{col_offset + num_cols - 1})"

    def indexes_ranges(self, index: int) -> str:
        """The text of row ranges (AddRowRanges), given their list's number, last row included."""
        ranges = self._computation.indexes_ranges[index]

        def one(i: int) -> str:
            begin, end = ranges[i].tolist()
            return "null" if begin == -1 else f"{begin}:{end - 1}"

        return f"[{_join_ends(len(ranges), ',', one)}]"

    def component(self, index: int) -> str:
        """The name of a component."""
        return self._nnet.component_names[index]

    def node(self, index: int) -> str:
        """The name of a node."""
        return self._nnet.node_names[index]


def program_text(computation: Computation, nnet: Nnet) -> str:
    """The text of a program, with newline: matrices, the cindexes of their rows, commands."""
    commands = "".join(f"{text}\n" for text in command_texts(computation, nnet))
    return f"{preamble_text(computation, nnet)}# begin forward commands\n{commands}"


def command_texts(computation: Computation, nnet: Nnet) -> list[str]:
    """A text for each command, such as "c3: m2 += m1", without newlines."""
    names = ProgramNames(computation, nnet)
    return [
        _shorten(f"c{i}: {command.text(names)}\n")[:-1]
        for i, command in enumerate(computation.commands)
    ]


def command_text(computation: Computation, nnet: Nnet, index: int) -> str:
    """The text of command number `index`, such as "c3: m2 += m1"."""
    text = computation.commands[index].text(ProgramNames(computation, nnet))
    return _shorten(f"c{index}: {text}\n")[:-1]


def preamble_text(computation: Computation, nnet: Nnet) -> str:
    """The text of a program's matrix sizes and, if known, of the cindexes of their rows."""
    sizes = [
        f"m{i}({info.num_rows}, {info.num_cols})"
        for i, info in enumerate(computation.matrices)
        if i > 0
    ]
    lines = ["matrix " + ", ".join(sizes)]
    if computation.matrix_debug_info:
        lines += [
            "# The following show how matrices correspond to network-nodes and",
            "# cindex-ids.  Format is: matrix = <node-id>.[value|deriv][ <list-of-cindex-ids> ]",
            "# where a cindex-id is written as (n,t[,x]) but ranges of t values are compressed",
            "# so we write (n, tfirst:tlast).",
        ]
        for i, debug in enumerate(computation.matrix_debug_info[1:], start=1):
            kind = "deriv" if debug.is_deriv else "value"
            what = cindexes_text(debug.nodes, debug.indexes, nnet.node_names)
            lines.append(f"m{i} == {kind}: {what}")
    return "".join(f"{line}\n" for line in lines)


def integers_text(values: IntArray) -> str:
    """Integers with runs shortened: "[0:9, 4x3, 7, 8]" (Kaldi's PrintIntegerVector)."""
    size = len(values)
    if size == 0:
        return "[ ]"
    steps = np.diff(values.astype(np.int64))
    changes = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    # run_end[i]: last element that the run of equal steps from element i reaches.
    run_end = np.append(changes, size - 1)[np.searchsorted(changes, np.arange(size), "right")]
    parts = []
    start = 0
    while start < size:
        end = int(run_end[start]) if start < size - 1 and steps[start] in (0, 1) else start
        first, last, count = int(values[start]), int(values[end]), end - start + 1
        if count == 1:
            parts.append(f"{first}")
        elif count == 2:
            parts.append(f"{first}, {last}")
        else:
            parts.append(f"{first}x{count}" if first == last else f"{first}:{last}")
        start = end + 1
    return f"[{', '.join(parts)}]"


def indexes_text(indexes: IndexArray) -> str:
    """Indexes as "[(n,t), (n,tfirst:tlast,x)]", consecutive t joined (Kaldi's PrintIndexes)."""
    if len(indexes) == 0:
        return "[ ]"
    n, t, x = (indexes[:, i].astype(np.int64) for i in range(3))
    breaks = (t[1:] != t[:-1] + 1) | (n[1:] != n[:-1]) | (x[1:] != x[:-1])
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    ends = np.append(starts[1:], len(t)) - 1

    def one(r: int) -> str:
        first, last = int(starts[r]), int(ends[r])
        times = f"{t[first]}" if first == last else f"{t[first]}:{t[last]}"
        extra = f",{x[first]}" if x[first] != 0 else ""
        return f"({n[first]},{times}{extra})"

    return _shorten(f"[{_join_ends(len(starts), ', ', one)}]")


def cindexes_text(nodes: IntArray, indexes: IndexArray, node_names: list[str]) -> str:
    """Text "node[indexes]node[indexes]"; successive cindexes of a node share a bracket."""
    if len(nodes) == 0:
        return "[ ]"
    starts = [0, *(np.flatnonzero(nodes[1:] != nodes[:-1]) + 1).tolist(), len(nodes)]
    return "".join(
        f"{node_names[nodes[a]]}{indexes_text(indexes[a:b])}" for a, b in itertools.pairwise(starts)
    )


def _join_ends(size: int, separator: str, text_of: Callable[[int], str]) -> str:
    """The joined texts text_of(0) ... text_of(size - 1); only both ends if there are many."""
    if size <= 2 * _ENDS:
        return separator.join(text_of(i) for i in range(size))
    first = separator.join(text_of(i) for i in range(_ENDS))
    last = separator.join(text_of(i) for i in range(size - _ENDS, size))
    return f"{first}{separator}{last}"


def _shorten(text: str) -> str:
    if len(text) <= _MAX_LENGTH:
        return text
    return f"{text[: _MAX_LENGTH // 2]} ... {text[-(_MAX_LENGTH // 2) :]}"


_NUMBER = re.compile(r"c\d+: ")


def difference_text(before: Computation, after: Computation, nnet: Nnet) -> str:
    """The lines that `after` lacks (-) and adds (+): matrices, then commands; "" if none.

    Commands that differ in their number only are equal.
    """
    from difflib import SequenceMatcher

    removed, added = _lines(before, nnet), _lines(after, nnet)
    # Numbers of commands change with every command before them.
    old = [_NUMBER.sub("", line, count=1) for line in removed]
    new = [_NUMBER.sub("", line, count=1) for line in added]
    lines = []
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            lines += [f"- {line}" for line in removed[i:j]] + [f"+ {line}" for line in added[k:m]]
    return "".join(f"{line}\n" for line in lines)


def sizes_text(before: Computation, after: Computation) -> str:
    """The numbers of commands and matrices, and the peak of memory, before and after a pass."""
    pairs = (
        ("commands", len(before.commands), len(after.commands)),
        ("matrices", len(before.matrices) - 1, len(after.matrices) - 1),
        ("peak bytes", max_memory_use(before), max_memory_use(after)),
    )
    return ", ".join(f"{what} {old} -> {new}" for what, old, new in pairs)


def _lines(computation: Computation, nnet: Nnet) -> list[str]:
    """A line for each matrix, with its cindexes if they are known, and for each command."""
    lines = [f"m{i}({m.num_rows}, {m.num_cols})" for i, m in enumerate(computation.matrices) if i]
    for i, debug in enumerate(computation.matrix_debug_info[1:]):
        kind = "deriv" if debug.is_deriv else "value"
        lines[i] += f" == {kind}: {cindexes_text(debug.nodes, debug.indexes, nnet.node_names)}"
    return lines + command_texts(computation, nnet)
