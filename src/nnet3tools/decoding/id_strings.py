"""Sequences of transition ids as nodes of a tree: longer ones share what they begin with."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["EMPTY", "IdStrings"]

EMPTY = 0
"""The node of the sequence without ids."""


class IdStrings:
    """Gives every sequence that is asked for one number."""

    def __init__(self) -> None:
        self._parents, self._ids, self._depths = [0], [0], [0]
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._parents)

    def extended(self, node: int, ids: Iterable[int]) -> int:
        """The sequence of a node and some ids after it."""
        for one in ids:
            key = (node, one)
            child = self._children.get(key)
            if child is None:
                child = self._children[key] = len(self._parents)
                self._parents.append(node)
                self._ids.append(one)
                self._depths.append(self._depths[node] + 1)
            node = child
        return node

    def ids(self, node: int, prefix: int = EMPTY) -> list[int]:
        """The ids of a sequence, without those of a node that it begins with."""
        ids = []
        while node != prefix:
            ids.append(self._ids[node])
            node = self._parents[node]
        return ids[::-1]

    def common_prefix(self, nodes: Iterable[int]) -> int:
        """The longest sequence that all of these begin with."""
        nodes = iter(nodes)
        common = next(nodes)
        parents, depths = self._parents, self._depths
        for node in nodes:
            while node != common:
                if depths[node] > depths[common]:
                    node = parents[node]
                else:
                    common = parents[common]
        return common

    def order(self, node: int) -> tuple[int, list[int]]:
        """What compares as Kaldi's semiring does: the greater is the better of equal costs."""
        return -self._depths[node], self.ids(node)
