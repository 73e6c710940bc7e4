"""The table of docs/config.md that shows, for each form of descriptor, the rows that it takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nnet3tools.nnet.descriptor import Descriptor, SumDescriptor
from nnet3tools.nnet.indexes import IndexArray, make_indexes

FORMS = """
a
Offset(a, -1)
Offset(a, 2)
Offset(a, 0, 1)
Offset(Offset(a, 1), 1)
Append(a, b)
Append(Offset(a, -1), a, Offset(a, 1))
Append(a, Append(Offset(a, 1), b))
Offset(Append(a, Offset(a, 1)), 1)
Sum(a, Offset(a, 1))
Sum(a, a)
Sum(a, b)
Sum(a, Offset(a, 1), Offset(a, 2))
Sum(Append(a, b), Append(Offset(a, 1), b))
Failover(b, a)
Failover(Offset(b, 1), b)
Failover(b, Const(1.0, 2))
Sum(a, Failover(b, Offset(b, -1)))
IfDefined(b)
IfDefined(Offset(b, -1))
Sum(a, IfDefined(b))
IfDefined(Sum(a, b))
Switch(a, b)
Switch(a, Offset(a, -1), Offset(a, -2))
Switch(Sum(a, b), Offset(a, 1))
Switch(Failover(b, a), a)
Round(a, 2)
Round(a, 3)
Round(Offset(a, 1), 2)
Offset(Round(a, 2), 1)
ReplaceIndex(a, t, 0)
ReplaceIndex(a, x, 1)
Append(a, ReplaceIndex(b, t, 0))
Scale(0.5, a)
Scale(-1.0, Sum(a, Offset(a, 1)))
Sum(Scale(0.5, a), Scale(0.5, Offset(a, 1)))
Const(1.0, 2)
Sum(a, Const(1.0, 2))
Append(a, Const(1.0, 1))
""".strip().splitlines()

NODES = {"a": 0, "b": 1}
TIMES = range(4)
REQUESTED = make_indexes([0] * 4, list(TIMES), [0] * 4)


def _exists(nodes: np.ndarray, indexes: IndexArray) -> np.ndarray:
    """Node a has all rows; node b has those with an even t."""
    return (nodes == NODES["a"]) | (indexes[:, 1] % 2 == 0)


class Term(NamedTuple):
    """A row that a requested row takes: node, t, x, and the factor of the row."""

    node: str
    t: int
    x: int
    scale: float

    def __str__(self) -> str:
        place = f"{self.node}({self.t})" if self.x == 0 else f"{self.node}({self.t}, x={self.x})"
        return place if self.scale == 1.0 else f"{self.scale:g} {place}"


class PartOfRow(NamedTuple):
    """What a requested row gets from a part of the descriptor."""

    computable: bool
    terms: list[Term]
    constant: float

    def __str__(self) -> str:
        shown = [str(term) for term in self.terms]
        if self.constant or not shown:
            shown.append(f"{self.constant:g}")
        return " + ".join(shown) if self.computable else "none"


def _rows_of_part(part: SumDescriptor) -> list[PartOfRow]:
    mapped = [leaf.map_to_input(REQUESTED) for leaf in part.leaves]
    computable, used = part.combine(len(TIMES), [_exists(*pair) for pair in mapped])
    constants = part.row_constants(len(TIMES), used)
    scales = [leaf.row_scales(REQUESTED) for leaf in part.leaves]
    found = []
    for row in range(len(TIMES)):
        terms = [
            Term("ab"[nodes[row]], *indexes[row, 1:].tolist(), scales[k][row])
            for k, (nodes, indexes) in enumerate(mapped)
            if used[k][row]
        ]
        found.append(PartOfRow(bool(computable[row]), terms, float(constants[row])))
    return found


def rows_of(descriptor: Descriptor) -> list[tuple[PartOfRow, ...]]:
    """For each of TIMES, what the row gets from each part of the descriptor."""
    return list(zip(*map(_rows_of_part, descriptor.parts), strict=True))


def descriptor_table() -> str:
    """The table in Markdown."""
    lines = [
        "| descriptor | t = 0 | t = 1 | t = 2 | t = 3 | normal form |",
        "|---|---|---|---|---|---|",
    ]
    for form in FORMS:
        descriptor = Descriptor.parse(form, NODES)
        cells = [
            ", ".join(map(str, row)) if all(part.computable for part in row) else "none"
            for row in rows_of(descriptor)
        ]
        normal = descriptor.text(list(NODES))
        shown = "" if normal == form.replace("1.0", "1") else f"`{normal}`"
        lines.append(f"| `{form}` | {' | '.join(cells)} | {shown} |")
    return "\n".join(lines) + "\n"
