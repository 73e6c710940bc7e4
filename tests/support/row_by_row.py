"""A network computed one row at a time, by recursion over (node, index), in float64.

Written for the tests and independent of graph/, compiler/, optimizer/ and executor/: it reads the
config text itself, and evaluates descriptors as they are written, not in their normal form.
"""

import re
from dataclasses import dataclass, field

import numpy as np

from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.indexes import NO_TIME
from nnet3tools.nnet.nnet import Nnet
from support.harness import in_float64

Index = tuple[int, int, int]
Expression = str | list
Row = np.ndarray | None
"""The values of a node at an index; None if they cannot be computed."""

_FARTHEST = 200
"""Recurrences are not followed beyond this time: nothing is given there."""


@dataclass
class RowByRow:
    """Values of a network's nodes given the rows of its inputs.

    `components` may be changed (perturbed) between evaluations; `forget` goes with that.
    """

    config: str
    nnet: Nnet
    inputs: dict[str, dict[Index, np.ndarray]]
    components: dict[str, Component] = field(init=False)
    memory: dict[tuple[str, Index], Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = zip(self.nnet.component_names, self.nnet.components, strict=True)
        self.components = {name: in_float64(component) for name, component in named}
        self.nodes = {}
        for line in self.config.splitlines():
            kind, _, rest = line.partition(" ")
            values = dict(re.findall(r"([\w-]+)=(.*?)(?=\s+[\w-]+=|\s*$)", rest))
            if kind and kind != "component":
                source = _parse(values["input"]) if "input" in values else ""
                self.nodes[values["name"]] = (kind, values, source)

    def forget(self) -> None:
        """Forget all values."""
        self.memory.clear()

    def output(self, name: str, index: Index) -> np.ndarray:
        """A row of an output; it must be computable."""
        row = self._value(self.nodes[name][2], index)
        assert row is not None, f"{name} {index} cannot be computed row by row"
        return row

    def _node(self, name: str, index: Index) -> Row:
        key = (name, index)
        if key not in self.memory:
            self.memory[key] = None  # a circle without delay has no value
            self.memory[key] = self._compute_node(name, index)
        return self.memory[key]

    def _compute_node(self, name: str, index: Index) -> Row:
        kind, values, source = self.nodes[name]
        if abs(index[1]) > _FARTHEST:
            return None
        if kind == "input-node":
            return self.inputs[name].get(index)
        if kind == "dim-range-node":
            row, start = self._node(values["input-node"], index), int(values["dim-offset"])
            return None if row is None else row[start : start + int(values["dim"])]
        component = self.components[values["component"]]
        if component.properties & Properties.SIMPLE:
            row = self._value(source, index)
            return None if row is None else _propagate(component, row[None], 1)[0]
        return self._several_inputs(component, source, index)

    def _several_inputs(self, component: Component, source: Expression, index: Index) -> Row:
        """One row of a component that looks at other indexes than its own."""
        outputs = np.array([index], np.int32)
        inputs, offsets = component.input_indexes(outputs)
        rows = {i: self._value(source, i) for i in _tuples(inputs)}
        there = np.array([rows[i] is not None for i in _tuples(inputs)], bool)
        computable, used = component.computable(outputs, inputs, offsets, there)
        if not computable.all():
            return None
        inputs = np.unique(inputs[used], axis=0).reshape(-1, 3)
        inputs = inputs[np.lexsort((inputs[:, 0], inputs[:, 2], inputs[:, 1]))]
        if component.properties & Properties.REORDERS_INDEXES:
            inputs, outputs = component.reorder_indexes(inputs, outputs)
        precomputed = component.precompute_indexes(inputs, outputs, False)
        x = np.zeros((len(inputs), component.input_dim))
        for i, key in enumerate(_tuples(inputs)):
            if key[1] != NO_TIME:
                x[i] = rows[key]
        out = _propagate(component, x, len(outputs), precomputed)
        return out[_tuples(outputs).index(index)]

    def _value(self, source: Expression, index: Index) -> Row:
        if isinstance(source, str):
            return self._node(source, index)
        name, *parts = source
        n, t, x = index
        match name:
            case "Append" | "Sum":
                rows = []
                for part in parts:
                    if (row := self._value(part, index)) is None:
                        return None
                    rows.append(row)
                return np.concatenate(rows) if name == "Append" else np.sum(rows, axis=0)
            case "Failover":
                first = self._value(parts[0], index)
                return first if first is not None else self._value(parts[1], index)
            case "IfDefined":
                row = self._value(parts[0], index)
                return row if row is not None else np.zeros(self._dim(parts[0]))
            case "Offset":
                dx = int(parts[2]) if len(parts) > 2 else 0
                return self._value(parts[0], (n, t + int(parts[1]), x + dx))
            case "Round":
                return self._value(parts[0], (n, t // int(parts[1]) * int(parts[1]), x))
            case "Switch":
                return self._value(parts[t % len(parts)], index)
            case "ReplaceIndex":
                new = int(parts[2])
                return self._value(parts[0], (n, new, x) if parts[1] == "t" else (n, t, new))
            case "Scale":
                row = self._value(parts[1], index)
                return None if row is None else float(parts[0]) * row
            case "Const":
                return np.full(int(parts[1]), float(parts[0]))
        raise AssertionError(name)

    def _dim(self, source: Expression) -> int:
        if isinstance(source, str):
            return self.nnet.dim(self.nnet.node_index(source))
        name, *parts = source
        if name == "Append":
            return sum(map(self._dim, parts))
        return int(parts[1]) if name == "Const" else self._dim(parts[1 if name == "Scale" else 0])


def _tuples(indexes: np.ndarray) -> list[Index]:
    return [(int(n), int(t), int(x)) for n, t, x in indexes]


def _propagate(
    component: Component, x: np.ndarray, num_rows: int, precomputed: object = None
) -> np.ndarray:
    out = np.zeros((num_rows, component.output_dim))
    component.propagate(precomputed, np.ascontiguousarray(x), out)  # type: ignore[arg-type]
    return out


def _parse(text: str) -> Expression:
    """A descriptor as nested lists."""
    words = re.findall(r"[(),]|[^\s(),]+", text)

    def parse(at: int) -> tuple[Expression, int]:
        word = words[at]
        if at + 1 == len(words) or words[at + 1] != "(":
            return word, at + 1
        parts: list[Expression] = [word]
        at += 1
        while words[at] != ")":
            part, at = parse(at + 1)
            parts.append(part)
        return parts, at + 1

    return parse(0)[0]
