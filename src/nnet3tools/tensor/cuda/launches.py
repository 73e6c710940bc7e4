"""Launches as values: what is to be launched, and which memory it reads and writes.

Operators are bound to launches. Called, a launch goes to the device; while somebody takes notes
(`noted`), it is noted instead, so that a list of them can be rewritten before a graph is captured
(waves.py).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from nnet3tools.tensor.cuda.device import Array, Dim, Kernel, get_device

__all__ = ["Launch", "Other", "Product", "is_noting", "noted", "zero_tickets"]

_notes: list[Launch | Other] | None = None


class Launch:
    """A kernel with its grid and arguments."""

    __slots__ = (
        "args", "block", "grid", "kernel", "loops", "name", "points", "reads", "size", "source",
        "space", "writes",
    )  # fmt: skip

    def __init__(
        self, kernel: Kernel, source: str, name: str, grid: Dim, block: Dim, args: Sequence[Any],
        reads: Sequence[Array], writes: Sequence[Array], *, size: int = 1 << 62,
        loops: bool = False, space: Hashable = None, points: Sequence[Array] = (),
    ) -> None:  # fmt: skip
        self.kernel, self.source, self.name = kernel, source, name
        self.grid, self.block, self.args = grid, block, tuple(args)
        self.reads, self.writes = tuple(reads), tuple(writes)
        """All memory it looks at, and all it changes; kept alive, as arguments are addresses."""
        self.size = size
        """The number of points that threads work on."""
        self.loops = loops
        """Whether a grid of any size does the same work."""
        self.space = space
        """In launches of equal spaces (not None) the same thread works on the same point."""
        self.points = tuple(points)
        """Those arrays of which a thread reads and writes its own points only."""

    def __call__(self) -> None:
        if _notes is None:
            self.kernel(self.grid, self.block, self.args)
        else:
            _notes.append(self)

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays that it reads or writes."""
        return sum(a.nbytes for a in {id(a): a for a in (*self.reads, *self.writes)}.values())

    def __repr__(self) -> str:
        return f"{self.name} {self.grid} {self.block}"


class Other:
    """Work that is no kernel of ours, as a product: done as it is, between kernels."""

    __slots__ = ("name", "reads", "run", "writes")

    def __init__(
        self, name: str, run: Callable[[], Any], reads: Sequence[Array], writes: Sequence[Array]
    ) -> None:
        self.name, self.run, self.reads, self.writes = name, run, tuple(reads), tuple(writes)

    def __call__(self) -> None:
        if _notes is None:
            self.run()
        else:
            _notes.append(self)

    def __repr__(self) -> str:
        return self.name


class Product(Other):
    """A matrix product, which products of the same form may join (products.py)."""

    __slots__ = ("form", "places")

    def __init__(
        self, form: Hashable, places: tuple[int, int, int], run: Callable[[], Any],
        reads: Sequence[Array], writes: Sequence[Array],
    ) -> None:  # fmt: skip
        super().__init__("product", run, reads, writes)
        self.form, self.places = form, places
        """All but the addresses of its three matrices, None for what nothing can join; those."""


@contextlib.contextmanager
def noted() -> Iterator[list[Launch | Other]]:
    """The list of all that is launched in the `with` block, which is not done."""
    global _notes
    before, _notes = _notes, []
    try:
        yield _notes
    finally:
        _notes = before


def is_noting() -> bool:
    """Whether launches are noted instead of done."""
    return _notes is not None


_TICKETS = 1 << 14
"""Made at once."""


class _Tickets:
    """A device's tickets: zeros that kernels leave as zeros, handed out again when free."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}
        self._new: Array = None

    def take(self, count: int) -> Array:
        free = self._free.setdefault(count, [])
        if free:
            base = free.pop()
        else:
            if self._new is None or len(self._new) < count:
                zeros = np.zeros(max(_TICKETS, count), np.uint32)
                self._new = get_device().upload(zeros)
            base, self._new = self._new[:count], self._new[count:]
        taken = base[:]
        weakref.finalize(taken, free.append, base)
        return taken


_tickets: weakref.WeakKeyDictionary[Any, _Tickets] = weakref.WeakKeyDictionary()


def zero_tickets(count: int) -> Array:
    """Zeros (uint32), one for each group of blocks of which the last has something left to do.

    Kernels leave zeros behind (nn_is_last in prelude.cuh), so that whoever comes next finds them.
    """
    return _tickets.setdefault(get_device(), _Tickets()).take(count)
