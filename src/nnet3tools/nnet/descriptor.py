"""Descriptors: how the input of a node is composed of the outputs of other nodes.

Kaldi's strict form has three levels. A Descriptor appends parts; a part is a SumDescriptor (Sum,
Failover, IfDefined, Const); its leaves are Forwarding expressions, which map each requested Index
to a (node, Index). Evaluation works on whole index arrays. Source: nnet-descriptor.h/.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import ConfigError, TextError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.grammars.descriptor_syntax import Expression
from nnet3tools.nnet.config import nearest_hint
from nnet3tools.nnet.descriptor_form import normalize
from nnet3tools.nnet.descriptor_parser import parse_expression
from nnet3tools.nnet.forwarding import (
    Forwarding,
    NodeDims,
    NodeTerm,
    Offset,
    ReplaceIndex,
    Round,
    Switch,
)
from nnet3tools.nnet.indexes import BoolArray

Combined = tuple[BoolArray, list[BoolArray]]
"""The rows that can be computed, and for each leaf the rows that use it."""


class SumDescriptor:
    """A part of a descriptor: an expression such as Sum(a, IfDefined(Offset(b, -3))).

    Its leaves, here a and Offset(b, -3), read one node each; `terms` are the arguments of the
    outermost operator.
    """

    terms: tuple[SumDescriptor, ...] = ()

    @cached_property
    def leaves(self) -> tuple[Forwarding, ...]:
        """The expressions of one node each in this part of a descriptor, in Kaldi's order."""
        return tuple(leaf for term in self.terms for leaf in term.leaves)

    @property
    def constant(self) -> float | None:
        """The constant that Const() expressions add to each row; None if it may differ by row."""
        return 0.0

    def row_constants(self, num_rows: int, used: list[BoolArray]) -> NDArray[np.float32]:
        """The constant in each row, (num_rows,); `used[i]` flags the rows that use leaf i."""
        return np.full(num_rows, self.constant, np.float32)

    def dim(self, nnet: NodeDims) -> int:
        """Number of columns of this part of a descriptor; ConfigError if its terms disagree."""
        raise NotImplementedError

    def modulus(self) -> int:
        """The period in t with which the part's structure repeats."""
        return math.lcm(*(term.modulus() for term in self.terms))

    def text(self, node_names: Sequence[str]) -> str:
        """This part of a descriptor as Kaldi prints it; node_names[n] is the name of node n."""
        raise NotImplementedError

    def renumber(self, old_to_new: Sequence[int]) -> SumDescriptor:
        """A copy of the part with node number n replaced by `old_to_new[n]`."""
        raise NotImplementedError

    def combine(self, num_rows: int, available: list[BoolArray]) -> Combined:
        """(flags of computable rows, for each leaf flags of the rows that use it), `num_rows` each.

        `available[i]` flags the rows of leaf i that exist. A Sum needs all of its arguments;
        Failover uses the first computable one; Const and IfDefined need none. A row that is not
        computable uses no leaf.
        """
        raise NotImplementedError

    def required_nodes(self) -> set[int]:
        """Nodes that each row of the part needs at the same Index."""
        return set()


@dataclass(frozen=True)
class Leaf(SumDescriptor):
    """A part of a descriptor that reads one node through a forwarding expression."""

    source: Forwarding

    @cached_property
    def leaves(self) -> tuple[Forwarding, ...]:
        """The forwarding expression, as a tuple of one."""
        return (self.source,)

    def dim(self, nnet: NodeDims) -> int:
        return self.source.dim(nnet)

    def modulus(self) -> int:
        return self.source.modulus()

    def text(self, node_names: Sequence[str]) -> str:
        return self.source.text(node_names)

    def renumber(self, old_to_new: Sequence[int]) -> Leaf:
        return Leaf(self.source.renumber(old_to_new))

    def combine(self, num_rows: int, available: list[BoolArray]) -> Combined:
        return available[0], available

    def required_nodes(self) -> set[int]:
        return {self.source.node} if isinstance(self.source, NodeTerm) else set()


@dataclass(frozen=True)
class Const(SumDescriptor):
    """Const(value, dim): a constant in each of `num_columns` columns."""

    value: float
    num_columns: int

    @property
    def constant(self) -> float | None:
        """The value of the constant."""
        return self.value

    def dim(self, nnet: NodeDims) -> int:
        return self.num_columns

    def text(self, node_names: Sequence[str]) -> str:
        return f"Const({self.value:g}, {self.num_columns})"

    def renumber(self, old_to_new: Sequence[int]) -> Const:
        return self

    def combine(self, num_rows: int, available: list[BoolArray]) -> Combined:
        return np.ones(num_rows, bool), []


@dataclass(frozen=True)
class IfDefined(SumDescriptor):
    """IfDefined(x): x where it can be computed, zero elsewhere."""

    source: SumDescriptor

    @property
    def terms(self) -> tuple[SumDescriptor, ...]:  # type: ignore[override]
        """The argument, as a tuple of one."""
        return (self.source,)

    @property
    def constant(self) -> float | None:
        """The argument's constant; None for a nonzero one if some rows may lack the argument."""
        constant = self.source.constant
        return constant if constant == 0.0 or not self.source.leaves else None

    def row_constants(self, num_rows: int, used: list[BoolArray]) -> NDArray[np.float32]:
        computable = self.source.combine(num_rows, used)[0]
        constants = self.source.row_constants(num_rows, used)
        return np.where(computable, constants, np.float32(0.0))

    def dim(self, nnet: NodeDims) -> int:
        return self.source.dim(nnet)

    def text(self, node_names: Sequence[str]) -> str:
        return f"IfDefined({self.source.text(node_names)})"

    def renumber(self, old_to_new: Sequence[int]) -> IfDefined:
        return IfDefined(self.source.renumber(old_to_new))

    def combine(self, num_rows: int, available: list[BoolArray]) -> Combined:
        return np.ones(num_rows, bool), self.source.combine(num_rows, available)[1]


@dataclass(frozen=True)
class Joined(SumDescriptor):
    """Sum(a, Sum(b, ...)), or Failover(a, Failover(b, ...)): a's row if computable, else b's."""

    operator: str
    terms: tuple[SumDescriptor, ...]

    @property
    def constant(self) -> float | None:
        """The sum of a Sum's constants, or a Failover's common constant; None if rows differ."""
        constants = [term.constant for term in self.terms]
        total = constants[-1]
        for constant in reversed(constants[:-1]):
            if total is None or constant is None:
                return None
            if self.operator == "Sum":
                total = float(np.float32(constant) + np.float32(total))
            elif constant != total:
                return None
        return total

    def row_constants(self, num_rows: int, used: list[BoolArray]) -> NDArray[np.float32]:
        *first, (last, of_last) = self._split_by_term(used)
        total = last.row_constants(num_rows, of_last)
        for term, of_term in reversed(first):
            constants = term.row_constants(num_rows, of_term)
            if self.operator == "Sum":
                total = constants + total
            else:
                total = np.where(term.combine(num_rows, of_term)[0], constants, total)
        return total

    def _split_by_term(
        self, of_leaves: list[BoolArray]
    ) -> list[tuple[SumDescriptor, list[BoolArray]]]:
        """Pair each term with its leaves' masks; `of_leaves` has a mask of rows for each leaf."""
        shares, start = [], 0
        for term in self.terms:
            end = start + len(term.leaves)
            shares.append((term, of_leaves[start:end]))
            start = end
        return shares

    def dim(self, nnet: NodeDims) -> int:
        dims = [term.dim(nnet) for term in self.terms]
        for dim in reversed(dims[:-1]):
            if dim != dims[-1]:
                raise ConfigError(
                    f"the arguments of {self.operator}() have different dimensions: "
                    f"{dim} and {dims[-1]}"
                )
        return dims[-1]

    def text(self, node_names: Sequence[str]) -> str:
        *first, last = (term.text(node_names) for term in self.terms)
        opened = "".join(f"{self.operator}({text}, " for text in first)
        return f"{opened}{last}{')' * len(first)}"

    def renumber(self, old_to_new: Sequence[int]) -> Joined:
        return Joined(self.operator, tuple(term.renumber(old_to_new) for term in self.terms))

    def combine(self, num_rows: int, available: list[BoolArray]) -> Combined:
        combined = [term.combine(num_rows, share) for term, share in self._split_by_term(available)]
        if self.operator == "Sum":
            every = np.logical_and.reduce([computable for computable, _ in combined])
            return every, [used & every for _, of_term in combined for used in of_term]
        found, chosen = np.zeros(num_rows, bool), list[BoolArray]()
        for computable, of_term in combined:
            chosen += [used & ~found for used in of_term]
            found = found | computable
        return found, chosen

    def required_nodes(self) -> set[int]:
        required = [term.required_nodes() for term in self.terms]
        return set.union(*required) if self.operator == "Sum" else set.intersection(*required)


@dataclass(frozen=True)
class Descriptor:
    """The input of a component node or output node: parts appended column-wise."""

    parts: tuple[SumDescriptor, ...]

    @classmethod
    def parse(cls, text: str, node_numbers: dict[str, int]) -> Descriptor:
        """Parse a descriptor in which operators may nest freely; `node_numbers` are by node name.

        ConfigError gives the column, and the most similar name for an unknown name.
        """
        expression = parse_expression(text)
        try:
            return cls(tuple(_to_sum(term, node_numbers) for term in normalize(expression)))
        except TextError as error:
            raise TextError(error.message, text, error.position, "descriptor") from None

    def dim(self, nnet: NodeDims) -> int:
        """Number of columns of all parts; `nnet.dim(node)` gives the dimension of a node."""
        return sum(part.dim(nnet) for part in self.parts)

    def modulus(self) -> int:
        """The period in t with which the descriptor's structure repeats."""
        return math.lcm(*(part.modulus() for part in self.parts))

    def text(self, node_names: Sequence[str]) -> str:
        """The descriptor as Kaldi prints it."""
        parts = [part.text(node_names) for part in self.parts]
        return parts[0] if len(parts) == 1 else f"Append({', '.join(parts)})"

    def nodes(self) -> list[int]:
        """All nodes that the descriptor names, in order of appearance, with repetitions."""
        return [n for part in self.parts for leaf in part.leaves for n, _ in leaf.node_scales()]

    def required_nodes(self) -> set[int]:
        """Nodes that each row of the descriptor needs at the same Index."""
        return set().union(*(part.required_nodes() for part in self.parts))

    def renumber(self, old_to_new: Sequence[int]) -> Descriptor:
        """A copy of the descriptor with node number n replaced by `old_to_new[n]`."""
        return Descriptor(tuple(part.renumber(old_to_new) for part in self.parts))


def _to_sum(expression: Expression, node_numbers: dict[str, int]) -> SumDescriptor:
    """Convert an expression in Kaldi's three-level form to a part; `node_numbers` are by name."""
    if expression.operator in ("Sum", "Failover"):
        terms = tuple(_to_sum(child, node_numbers) for child in expression.children)
        return Joined(expression.operator, terms)
    if expression.operator == "IfDefined":
        return IfDefined(_to_sum(expression.children[0], node_numbers))
    if expression.operator == "Const":
        return Const(expression.alpha, expression.numbers[0])
    return Leaf(_to_forwarding(expression, node_numbers))


def _to_forwarding(expression: Expression, node_numbers: dict[str, int]) -> Forwarding:
    """Convert an expression without sums to a Forwarding; `node_numbers` are by node name."""
    if expression.operator in ("", "Scale"):
        leaf = expression.children[0] if expression.children else expression
        if (node := node_numbers.get(leaf.name)) is None:
            hint = nearest_hint(leaf.name, node_numbers)
            raise leaf.error(f"no node named '{leaf.name}'{hint}")
        return NodeTerm(node, expression.alpha)
    sources = tuple(_to_forwarding(child, node_numbers) for child in expression.children)
    if expression.operator == "Switch":
        return Switch(sources)
    if expression.operator == "Round":
        return Round(sources[0], expression.numbers[0])
    if expression.operator == "ReplaceIndex":
        return ReplaceIndex(sources[0], expression.name, expression.numbers[0])
    return Offset(sources[0], *expression.numbers)
