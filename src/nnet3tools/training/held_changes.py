"""Changes to examples that are held as bytes, made to those of one layout together.

What becomes of the rows of an example depends on its layout, so it is found out once, by changing
an example whose features are its row numbers: a target. Frame-level and chain examples differ in
what they are made of (`training/like_changes.py`, `chain/byte_changes.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from nnet3tools.io.held_bytes import HeldBytes
from nnet3tools.training.example import NnetIo
from nnet3tools.training.example_layout import Layout

__all__ = ["Changed", "HeldChanges", "Target"]

E = TypeVar("E")
_MAX_TARGETS = 1000


@dataclass(eq=False)
class Target(Generic[E]):
    """What examples of a layout become: `example` has row numbers of theirs as its features."""

    layout: Layout
    example: E


class Changed(NamedTuple):
    """An example with the changes that are to be made to it."""

    held: HeldBytes[Any]
    target: Target[Any]
    weight: float = 1.0


class HeldChanges(ABC, Generic[E]):
    """The changes of a copying program, which `finish` makes to what is held as bytes.

    Other examples are changed at once. All errors are raised at once, and random numbers drawn.
    """

    def __init__(self) -> None:
        self._unchanged: dict[Layout, Target[E]] = {}
        self._targets: dict[tuple[Target[E], Hashable], Target[E]] = {}

    # -- what a kind of examples says

    @abstractmethod
    def _layout_of(self, held: Any) -> Layout:
        """The layout that examples are grouped by."""

    @abstractmethod
    def _target(self, layout: Layout, example: E | None = None) -> Target[E]:
        """That of an example with row numbers for features; without one, of what stays as it is."""

    @abstractmethod
    def _scaled(self, example: E, key: str, weight: float) -> E: ...

    @abstractmethod
    def _renamed(self, example: E, key: str, name: str) -> E: ...

    @abstractmethod
    def _ios(self, example: E) -> list[NnetIo]:
        """What takes memory in an example."""

    @abstractmethod
    def _made(self, target: Any, examples: list[Changed]) -> Iterable[HeldBytes[E]]:
        """What examples with one target become."""

    # -- changes

    def scale(self, example: E | HeldBytes[E] | Changed, key: str, weight: float) -> E | Changed:
        """As scale_supervision."""
        if not isinstance(example, (HeldBytes, Changed)):
            return self._scaled(example, key, weight)
        changed = self._changed(example)
        self._scaled(changed.target.example, key, weight)
        return changed._replace(weight=weight)

    def rename(self, example: E | HeldBytes[E] | Changed, key: str, name: str) -> E | Changed:
        """As rename_output."""
        if not isinstance(example, (HeldBytes, Changed)):
            return self._renamed(example, key, name)
        changed = self._changed(example)
        if (renamed := self._targets.get((changed.target, name))) is None:
            output = self._renamed(changed.target.example, key, name)
            renamed = self._become(changed.target, name, output)
        return changed._replace(target=renamed)

    def _become(self, target: Target[E], what: Hashable, example: E) -> Target[E]:
        """Keep the target that a change makes of another."""
        made = self._targets[target, what] = self._target(target.layout, example)
        return made

    def _changed(self, example: HeldBytes[E] | Changed) -> Changed:
        if isinstance(example, Changed):
            return example
        # For each example: there may be many new names of one layout.
        if len(self._targets) + len(self._unchanged) > _MAX_TARGETS:
            self._forget()
        layout = self._layout_of(example)
        if (target := self._unchanged.get(layout)) is None:
            target = self._unchanged[layout] = self._target(layout)
        return Changed(example, target)

    def _forget(self) -> None:
        self._unchanged.clear()
        self._targets.clear()

    # -- making them

    def num_bytes(self, example: E | HeldBytes[E] | Changed) -> int:
        """The memory, or about that, of an example that waits to be finished."""
        if isinstance(example, Changed):
            example = example.held
        if isinstance(example, HeldBytes):
            return len(example.data)
        return sum(4 * io.features.shape[0] * io.features.shape[1] for io in self._ios(example))

    def finish(
        self, examples: Sequence[E | HeldBytes[E] | Changed]
    ) -> Iterator[E | HeldBytes[E] | Changed]:
        """The examples in order, changed; those with one target together."""
        groups: dict[Target[E], list[Changed]] = {}
        for example in examples:
            if isinstance(example, Changed):
                groups.setdefault(example.target, []).append(example)
        made = {target: iter(self._made(target, some)) for target, some in groups.items()}
        for example in examples:
            yield next(made[example.target]) if isinstance(example, Changed) else example
