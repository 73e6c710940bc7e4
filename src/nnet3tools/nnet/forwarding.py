"""Forwarding expressions, which map each row to one row of one node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import ConfigError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.nnet.indexes import NO_TIME, IndexArray, IntArray


class NodeDims(Protocol):
    """The part of a network that descriptors need: the dimensions of nodes."""

    def dim(self, node: int) -> int:
        """Number of columns of a node's value."""
        ...


class Forwarding:
    """A descriptor's expression that maps each requested Index to one node and its Index."""

    def map_to_input(self, indexes: IndexArray) -> tuple[IntArray, IndexArray]:
        """Map N Indexes (N, 3) to the nodes (N,) and Indexes (N, 3) whose values they take."""
        raise NotImplementedError

    def node_scales(self) -> list[tuple[int, float]]:
        """Number and scale of each node that the expression names, in order."""
        raise NotImplementedError

    def row_scales(self, indexes: IndexArray) -> NDArray[np.float64]:
        """The scale of the row that each of N requested Indexes maps to, (N,)."""
        raise NotImplementedError

    def dim(self, nnet: NodeDims) -> int:
        """Number of columns of the expression's value."""
        raise NotImplementedError

    def modulus(self) -> int:
        """The period in t with which the expression's structure repeats."""
        raise NotImplementedError

    def text(self, node_names: Sequence[str]) -> str:
        """The expression as Kaldi prints it."""
        raise NotImplementedError

    def renumber(self, old_to_new: Sequence[int]) -> Forwarding:
        """A copy of the expression with node number n replaced by `old_to_new[n]`."""
        raise NotImplementedError


@dataclass(frozen=True)
class NodeTerm(Forwarding):
    """The expression `name` or Scale(factor, name): the value of a node, possibly scaled."""

    node: int
    factor: float = 1.0

    def map_to_input(self, indexes: IndexArray) -> tuple[IntArray, IndexArray]:
        return np.full(len(indexes), self.node, np.int32), indexes

    def node_scales(self) -> list[tuple[int, float]]:
        return [(self.node, self.factor)]

    def row_scales(self, indexes: IndexArray) -> NDArray[np.float64]:
        return np.full(len(indexes), self.factor)

    def dim(self, nnet: NodeDims) -> int:
        return nnet.dim(self.node)

    def modulus(self) -> int:
        return 1

    def text(self, node_names: Sequence[str]) -> str:
        name = node_names[self.node]
        return name if self.factor == 1.0 else f"Scale({self.factor:g}, {name})"

    def renumber(self, old_to_new: Sequence[int]) -> NodeTerm:
        return NodeTerm(old_to_new[self.node], self.factor)


@dataclass(frozen=True)
class _Wrapper(Forwarding):
    """Base class of descriptor expressions with one argument, which only change the Index."""

    source: Forwarding

    def moved(self, indexes: IndexArray) -> IndexArray:
        """The Indexes that are requested from the argument, one for each requested Index."""
        raise NotImplementedError

    def map_to_input(self, indexes: IndexArray) -> tuple[IntArray, IndexArray]:
        return self.source.map_to_input(self.moved(indexes))

    def row_scales(self, indexes: IndexArray) -> NDArray[np.float64]:
        return self.source.row_scales(self.moved(indexes))

    def node_scales(self) -> list[tuple[int, float]]:
        return self.source.node_scales()

    def dim(self, nnet: NodeDims) -> int:
        return self.source.dim(nnet)

    def renumber(self, old_to_new: Sequence[int]) -> Self:
        return replace(self, source=self.source.renumber(old_to_new))

    def modulus(self) -> int:
        # Like Kaldi, only Offset asks its argument; ReplaceIndex(..., x, ...) ignores a modulus.
        return 1


@dataclass(frozen=True)
class Offset(_Wrapper):
    """Offset(source, t [, x]): the row whose t and x are larger by these amounts."""

    t: int
    x: int = 0

    def moved(self, indexes: IndexArray) -> IndexArray:
        """The Indexes with the offset added to t and x; an Index without a time keeps none."""
        moved = indexes + np.array([0, self.t, self.x], np.int32)
        moved[indexes[:, 1] == NO_TIME, 1] = NO_TIME
        return moved

    def modulus(self) -> int:
        return self.source.modulus()

    def text(self, node_names: Sequence[str]) -> str:
        x = f", {self.x}" if self.x != 0 else ""
        return f"Offset({self.source.text(node_names)}, {self.t}{x})"


@dataclass(frozen=True)
class Round(_Wrapper):
    """Round(source, modulus): the row whose t is rounded down to a multiple of `modulus`."""

    multiple: int

    def moved(self, indexes: IndexArray) -> IndexArray:
        rounded = indexes.copy()
        t = indexes[:, 1]
        rounded[:, 1] = np.where(t == NO_TIME, t, t - np.mod(t, self.multiple))
        return rounded

    def modulus(self) -> int:
        return self.multiple

    def text(self, node_names: Sequence[str]) -> str:
        return f"Round({self.source.text(node_names)}, {self.multiple})"


@dataclass(frozen=True)
class ReplaceIndex(_Wrapper):
    """ReplaceIndex(source, t|x, value): the row whose t or x is the constant `value`."""

    variable: str
    value: int

    def moved(self, indexes: IndexArray) -> IndexArray:
        replaced = indexes.copy()
        replaced[:, 1 if self.variable == "t" else 2] = self.value
        return replaced

    def text(self, node_names: Sequence[str]) -> str:
        return f"ReplaceIndex({self.source.text(node_names)}, {self.variable}, {self.value})"


@dataclass(frozen=True)
class Switch(Forwarding):
    """Switch(a, b, ...): at time t, argument number t modulo the number of arguments."""

    sources: tuple[Forwarding, ...]

    def map_to_input(self, indexes: IndexArray) -> tuple[IntArray, IndexArray]:
        choice = np.mod(indexes[:, 1], len(self.sources))
        nodes = np.empty(len(indexes), np.int32)
        mapped = np.empty_like(indexes)
        for i, source in enumerate(self.sources):
            rows = choice == i
            nodes[rows], mapped[rows] = source.map_to_input(indexes[rows])
        return nodes, mapped

    def row_scales(self, indexes: IndexArray) -> NDArray[np.float64]:
        choice = np.mod(indexes[:, 1], len(self.sources))
        scales = np.stack([source.row_scales(indexes) for source in self.sources])
        return scales[choice, np.arange(len(indexes))]

    def node_scales(self) -> list[tuple[int, float]]:
        return [pair for source in self.sources for pair in source.node_scales()]

    def dim(self, nnet: NodeDims) -> int:
        """Number of columns; ConfigError if the arguments have different numbers of columns."""
        dims = [source.dim(nnet) for source in self.sources]
        if len(set(dims)) > 1:
            found = ", ".join(map(str, dims))
            raise ConfigError(f"the arguments of Switch() have different dimensions: {found}")
        return dims[0]

    def modulus(self) -> int:
        return math.lcm(len(self.sources), *(source.modulus() for source in self.sources))

    def text(self, node_names: Sequence[str]) -> str:
        return f"Switch({', '.join(source.text(node_names) for source in self.sources)})"

    def renumber(self, old_to_new: Sequence[int]) -> Switch:
        return Switch(tuple(source.renumber(old_to_new) for source in self.sources))
