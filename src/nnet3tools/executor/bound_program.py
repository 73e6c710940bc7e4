"""BoundProgram: what steps refer to: views of a program's matrices, networks, memos."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.nnet.components.base import Array, PrecomputedIndexes
from nnet3tools.program.computation import Computation

if TYPE_CHECKING:
    from nnet3tools.executor.memory_plan import MemoryPlan
    from nnet3tools.nnet.nnet import Nnet

Step = Callable[[], object]
"""The work of one command."""


@dataclass
class Segment:
    """The steps of a program between two points where its user gives or takes matrices.

    `accepts` and `provides`: matrices by node number to fill, and to read, before the segment runs.
    `steps`: (command number, work). `next`: index of the next segment; at the end, past the last.
    """

    accepts: dict[int, Array]
    provides: dict[int, Array]
    steps: list[tuple[int, Step]]
    next: int


class BoundProgram:
    """A program bound to memory and networks, which gives the arrays that its commands work on."""

    def __init__(
        self,
        computation: Computation,
        plan: MemoryPlan,
        arena: Array,
        nnet: Nnet,
        nnet_to_update: Nnet | None,
        nnet_to_store_stats: Nnet | None,
    ) -> None:
        self.computation, self.plan, self.arena = computation, plan, arena
        self.nnet, self.nnet_to_update = nnet, nnet_to_update
        self.nnet_to_store_stats = nnet_to_store_stats
        self.segments: list[Segment] = []
        """Segments of steps, which run in the order of `Segment.next`."""
        self.memos: dict[int, object] = {}
        """Memo number -> memo returned by Propagate, until Backprop uses it."""
        self.parts: dict[int, int] = {}
        """Backprop of a part of the rows -> the later command that updates the model from sums."""
        self.sums: dict[int, Array] = {}
        """Command that updates the model from sums -> the sums, in float64, that its parts make."""
        self._views: dict[tuple[int, int], Array] = {}

    def block(self, index: int) -> Array:
        """Block number `index` of the memory plan: a view of the arena, shaped as its matrix."""
        block = self.plan.blocks[index]
        info = self.computation.matrices[block.matrix]
        start = self.plan.offsets[index]
        flat = self.arena[start : start + block.num_bytes].view(block.dtype)
        return flat.reshape(info.num_rows, info.num_cols)

    def view(self, c: int, submatrix: int) -> Array:
        """The array of submatrix number `submatrix` after command `c`; swaps can move matrices."""
        info = self.computation.submatrices[submatrix]
        block = self.plan.after(c, info.matrix_index)
        if (view := self._views.get((block, submatrix))) is None:
            rows = slice(info.row_offset, info.row_offset + info.num_rows)
            cols = slice(info.col_offset, info.col_offset + info.num_cols)
            view = self._views[block, submatrix] = self.block(block)[rows, cols]
        return view

    def precomputed(self, number: int) -> PrecomputedIndexes | None:
        """The precomputed indexes with this number in the program; None if no component needs them.

        They become read-only, so that a GPU can keep the copies that it makes at the first call.
        """
        data = self.computation.component_precomputed_indexes[number].data
        if data is not None:
            data.freeze()
        return data

    def optional_view(self, c: int, submatrix: int) -> Array | None:
        """The array of submatrix number `submatrix` after command `c`; None for number 0."""
        return self.view(c, submatrix) if submatrix else None
