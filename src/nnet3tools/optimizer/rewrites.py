"""Reuse of the later passes' results for programs that differ in numbers of rows only.

From merge-variables to consolidate-io, passes depend on commands, on columns, and on the order in
which submatrices' rows begin and end, never on numbers of rows. A program with the same commands,
such as one for longer examples, is therefore rewritten in the same way if its rows begin and end in
the same order, in the matrices that contain them after the passes. Comparing that order takes a
fifth of the time of the passes.
"""

from collections import OrderedDict
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnet3tools.digests import sha256
from nnet3tools.fast_dataclasses import replace
from nnet3tools.nnet.indexes import IntArray, sorted_unique
from nnet3tools.optimizer.pass_context import Origins, PassContext, Transform
from nnet3tools.optimizer.renumber import first_equal_rows
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import listed_submatrices

Ints = NDArray[np.int64]

_MOST = 4
"""The most kinds of programs; programs of one kind differ in numbers of rows only."""
_MOST_LAYOUTS = 4
"""The most rewrites of one kind."""


class _Rewrite:
    """A change that passes made to a program, kept to make it in similar programs without them."""

    def __init__(self, before: Computation, origins: Origins, after: Computation) -> None:
        self.origins = origins
        self.commands, self.matrices = after.commands, after.matrices
        self._before: Computation | None = before

    @cached_property
    def layout(self) -> tuple[bytes, ...] | None:
        """The order in which the old submatrices' rows begin and end, as bytes; None if unknown."""
        assert self._before is not None
        layout, self._before = _layout(self._before, self.origins), None
        return layout


class Rewrites:
    """Caches the changes of passes, to repeat them in programs with other numbers of rows."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, list[_Rewrite]] = OrderedDict()
        """Kind of program (`_key`) -> rewrites."""
        self._first: tuple[Computation, PassContext, _Rewrite] | None = None
        """The first rewrite, whose key is computed when there is a second program."""

    def rewritten(
        self, computation: Computation, context: PassContext, passes: Transform
    ) -> Computation:
        """The program after `passes`, which are run unless the cache says what they would change.

        If the cache has the changes that they made to a program with the same commands and other
        sizes, these changes are made to this program, without running the passes.
        """
        if self._first is None and not self._kept:
            after, rewrite = _passed(computation, context, passes)
            self._first = computation, replace(context), rewrite
            return after
        if self._first is not None:
            before, of_first, rewrite = self._first
            self._kept[_key(before, of_first)] = [rewrite]
            self._first = None
        rewrites = self._kept.setdefault(key := _key(computation, context), [])
        self._kept.move_to_end(key)
        for rewrite in rewrites:
            layout = _layout(computation, rewrite.origins)
            if layout is not None and layout == rewrite.layout:
                return _rewritten(computation, rewrite)
        after, rewrite = _passed(computation, context, passes)
        rewrites.append(rewrite)
        del rewrites[:-_MOST_LAYOUTS]
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return after


def _passed(
    computation: Computation, context: PassContext, passes: Transform
) -> tuple[Computation, _Rewrite]:
    """The result of the passes, and a _Rewrite with the merges and renumberings that they made."""
    origins = Origins(computation)
    after = passes(computation, context.with_origins(origins))
    return after, _Rewrite(computation, origins, after)


def _key(computation: Computation, context: PassContext) -> bytes:
    """A digest, equal for programs with the same options that differ only in numbers of rows."""
    digest = sha256(repr(context.options).encode())
    analysis = context.analyst.analyze(computation)
    for cls, group in analysis.groups.items():
        digest.update(f"{cls.NAME} {len(group)} ".encode())
        digest.update(group.positions.tobytes())
        for name in cls.OPERANDS:
            column = group.alphas() if name == cls.ALPHA else group.column(name)
            digest.update(column.tobytes())
    digest.update(analysis.variables.submatrix_table[:, [0, 3, 4]].tobytes())
    columns = [(m.num_cols, int(m.stride_type)) for m in computation.matrices]
    digest.update(np.array(columns, np.int64).tobytes())
    return digest.digest()


def _layout(computation: Computation, origins: Origins) -> tuple[bytes, ...] | None:
    """The order in which submatrices' rows begin and end, within the matrices after the passes.

    Programs with equal `_key` and equal results are rewritten in the same way. `origins` has the
    passes' merges. None if it is unknown which index lists the passes join.
    """
    places = _final_table(computation, origins)
    width = int((places[:, 1] + places[:, 2]).max()) + 1
    begin = places[:, 0] * width + places[:, 1]
    cuts = np.concatenate([begin, begin + places[:, 2]])
    ranks = np.searchsorted(sorted_unique(cuts), cuts)
    which, listed = listed_submatrices(computation.indexes_multi)
    # Submatrices that the passes join have the same number here.
    numbers = first_equal_rows(places)
    multi = _equal(pairs.tobytes() for pairs in computation.indexes_multi)
    if multi != _equal(_renamed(p, numbers).tobytes() for p in computation.indexes_multi):
        return None  # which of them become one, and when, was not told
    layout = (
        ranks,
        _equal(computation.matrices[m].num_rows for m in origins.matrices.tolist()),
        [bool(len(rows) and rows.min() < 0) for rows in computation.indexes],
        _equal(rows.tobytes() for rows in computation.indexes),
        _equal(ranges.tobytes() for ranges in computation.indexes_ranges),
        multi,
        which,
        listed,
    )
    return tuple(np.asarray(part, np.int64).tobytes() for part in layout)


def _final_table(computation: Computation, origins: Origins) -> Ints:
    """(submatrices, 5): SubMatrixInfo of original submatrices, in the matrices after the passes."""
    table = computation.submatrix_table()
    matrix, rows, columns = origins.final_places(table)
    of_matrix = table[:, 0].copy()
    table[:, 0] = matrix[of_matrix]
    table[:, 1] += rows[of_matrix]
    table[:, 3] += columns[of_matrix]
    return table


def _equal(contents: Iterable[object]) -> list[int]:
    """For each item, the position of the first item that is equal to it."""
    first: dict[object, int] = {}
    return [first.setdefault(content, number) for number, content in enumerate(contents)]


def _renamed(pairs: IntArray, numbers: Ints) -> IntArray:
    """A copy of (submatrix, row) pairs with submatrices renumbered; pairs with -1 are unchanged."""
    out = pairs.copy()
    named = pairs[:, 0] >= 0
    out[named, 0] = numbers[pairs[named, 0]]
    return out


def _rewritten(computation: Computation, rewrite: _Rewrite) -> Computation:
    origins = rewrite.origins
    matrices = origins.matrices.tolist()
    table = _final_table(computation, origins)[origins.submatrices]
    table[:, 0] = np.searchsorted(origins.matrices, table[:, 0])
    new = computation.copy()
    new.commands = list(rewrite.commands)
    new.set_submatrices(table)
    new.matrices = [
        info._replace(num_rows=computation.matrices[m].num_rows)
        for m, info in zip(matrices, rewrite.matrices, strict=True)
    ]
    if debug := computation.matrix_debug_info:
        new.matrix_debug_info = [debug[m] for m in matrices]
    for name, kept in origins.lists.items():
        lists = getattr(computation, name)
        setattr(new, name, [lists[i] for i in kept])
    new.indexes_multi = [_renamed(pairs, origins.new_of_old) for pairs in new.indexes_multi]
    return new
