"""The things that lowered commands refer to: views of a program's matrices, networks, memos."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.nnet.components.base import Array, PrecomputedIndexes
from nnet3tools.program.computation import Computation

if TYPE_CHECKING:
    from nnet3tools.executor.memory_plan import MemoryPlan
    from nnet3tools.nnet.nnet import Nnet

__all__ = ["Binding"]


class Binding:
    """The things that commands are bound to: a program, its memory, and the networks involved."""

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
        self.memos: dict[int, object] = {}
        """Memo number -> what Propagate returned, until Backprop takes it."""
        self._views: dict[tuple[int, int], Array] = {}

    def block(self, index: int) -> Array:
        """All of a block of the arena, as the matrix it was made for."""
        block = self.plan.blocks[index]
        info = self.computation.matrices[block.matrix]
        start = self.plan.offsets[index]
        flat = self.arena[start : start + block.num_bytes].view(block.dtype)
        return flat.reshape(info.num_rows, info.num_cols)

    def view(self, c: int, submatrix: int) -> Array:
        """A submatrix as command c finds it."""
        info = self.computation.submatrices[submatrix]
        block = self.plan.after(c, info.matrix_index)
        if (found := self._views.get((block, submatrix))) is None:
            rows = slice(info.row_offset, info.row_offset + info.num_rows)
            cols = slice(info.col_offset, info.col_offset + info.num_cols)
            found = self._views[block, submatrix] = self.block(block)[rows, cols]
        return found

    def precomputed(self, number: int) -> PrecomputedIndexes | None:
        """A component's precomputed indexes, which nobody may change from here on.

        So a GPU can go on using the copies that it got at the first call.
        """
        data = self.computation.component_precomputed_indexes[number].data
        if data is not None:
            data.freeze()
        return data

    def optional_view(self, c: int, submatrix: int) -> Array | None:
        """As `view`; None for submatrix 0."""
        return self.view(c, submatrix) if submatrix else None
