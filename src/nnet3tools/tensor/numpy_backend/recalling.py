"""Finding again what was bound to the same arrays in an earlier run of a program.

Binding a formula takes 15 to 60 us and more where there are many tiles; finding it takes a few.
Memory that comes and goes must not be kept alive, nor mistaken for what was at its address before:
an operator is kept only if the owners of its operands' memory are those of an earlier run.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numpy import ndarray

from nnet3tools.tensor.numpy_backend.addresses import address
from nnet3tools.tensor.recall import Recall, current, paused
from nnet3tools.tensor.registry import binder_of, implements

__all__ = ["recall_calls", "recalled"]


class _Bound(NamedTuple):
    """A bound operator."""

    numbers: list[str]
    """Its operands that are no arrays, exactly."""
    run: Callable[[], Any]
    operands: Sequence[Any]
    """Kept, so that no other array gets the id of one of these."""


class _Seen(NamedTuple):
    """Operands met in some run."""

    run: int
    owners: list[weakref.ref]


def recalled(
    recall: Recall, binder: object, operands: Sequence[Any], bind: Callable[[], Callable[[], Any]]
) -> Callable[[], Any]:
    """What `bind()` gives for a binder and its operands, or what it gave before.

    What is bound must refer to arrays only by the memory that they have when it is called.
    """
    numbers = [repr(o) for o in operands if o.__class__ is not ndarray]
    # The very same objects first: looking up addresses takes five times as long.
    same = (binder, *[id(o) if o.__class__ is ndarray else None for o in operands])
    if (found := recall.bound.get(same)) is not None and found.numbers == numbers:
        return found.run
    key = (
        binder,
        *[
            (address(o), o.shape, o.strides, o.dtype) if o.__class__ is ndarray else None
            for o in operands
        ],
    )
    if (found := recall.bound.get(key)) is not None and found.numbers == numbers:
        return found.run
    run = bind()
    if found is None and _have_stayed(recall, key, operands):
        found = _Bound(numbers, run, operands)
        recall.keep(key, found)
        recall.keep(same, found)
    return run


def recall_calls(*names: str) -> None:
    """Let unbound calls of these operators find in a running program what was bound before.

    Only for operators whose bound form refers to memory alone: no index arrays, for instance.
    """
    for name in names:
        implements(name, "numpy")(functools.partial(_call, binder_of(name, "numpy")))


def _call(binder: Callable[..., Callable[[], Any]], *operands: Any, **named: Any) -> Any:
    def bind() -> Callable[[], Any]:
        with paused():
            return binder(*operands, **named)

    if (recall := current()) is None:
        return binder(*operands, **named)()
    return recalled(recall, (binder, *named), (*operands, *named.values()), bind)()


def _have_stayed(recall: Recall, key: Any, operands: Sequence[Any]) -> bool:
    """Whether these operands, memory and all, were there in an earlier run; if not, note them."""
    arrays = [o for o in operands if o.__class__ is ndarray]
    owners = [o if o.base is None else o.base for o in arrays]
    seen = recall.seen.get(key)
    if seen is not None:
        stayed = all(ref() is owner for ref, owner in zip(seen.owners, owners, strict=True))
        if stayed and seen.run == recall.run:
            return False
        if stayed:
            del recall.seen[key]
            return True
    try:
        recall.note(key, _Seen(recall.run, [weakref.ref(owner) for owner in owners]))
    except TypeError:
        pass  # memory of something that has no weak references: never kept
    return False
