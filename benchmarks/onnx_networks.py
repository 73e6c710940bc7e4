"""The networks of the benchmarks as ONNX files, made by expression.onnx_export.

Each file computes the outputs of one utterance from its frames and the network's context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np

from nnet3tools import expression as ex
from nnet3tools.expression.node import Node
from nnet3tools.expression.onnx_export import export_onnx
from nnet3tools.graph.context import compute_simple_nnet_context
from nnet3tools.graph.epochs import consumers, find_sccs
from nnet3tools.nnet.arithmetic import set_batchnorm_test_mode
from nnet3tools.nnet.descriptor import IfDefined, Leaf, SumDescriptor
from nnet3tools.nnet.model_file import read_nnet
from nnet3tools.nnet.nodes import ComponentNode, DescriptorNode, DimRangeNode, InputNode

DELAY = 3
"""Frames that a recurrence of these networks looks back, so that many are computed at once."""


def write_onnx(model: Path, num_frames: int, out: Path) -> tuple[int, int]:
    """Write the network `model` for utterances of `num_frames`; give (left, right) context."""
    import onnx

    network = _Network(model, num_frames)
    onnx.save(export_onnx({"output": network.output}), out)
    return network.context


class _Network:
    """Expressions of a network's nodes, each over the times that the outputs need."""

    def __init__(self, model: Path, num_frames: int) -> None:
        self._nnet, self._graph = read_nnet(str(model)), ex.Graph(inference=True)
        set_batchnorm_test_mode(self._nnet, True)
        groups = find_sccs(consumers(self._nnet))
        self._recurrent = {node for group in groups if len(group) > 1 for node in group}
        self._spans: dict[int, tuple[int, int]] = {}
        self._block = cache(self._new_block)
        self._constant = cache(lambda component, name: self._parameter(component, name))
        left, right, _ = compute_simple_nnet_context(self._nnet)
        self.context = left, right
        output = self._nnet.node_index("output")
        self._need(output, 0, num_frames)
        self.output = self._rows(output, 0, num_frames)

    def _need(self, node: int, begin: int, end: int) -> None:
        """Extend the span of a node, and those of its sources, to times [begin, end)."""
        if node in self._recurrent:
            begin = max(begin, 0)
        known = self._spans.get(node, (begin, begin))
        span = min(begin, known[0]), max(end, known[1])
        if span == known:
            return
        self._spans[node] = span
        for source, offset in self._sources(node):
            self._need(source, span[0] + offset, span[1] + offset)

    def _sources(self, number: int) -> list[tuple[int, int]]:
        """(node, time offset) of what a node reads."""
        node = self._nnet.nodes[number]
        if isinstance(node, DescriptorNode):
            return [_source(part)[:2] for part in _leaves(node.descriptor.parts)]
        if isinstance(node, DimRangeNode):
            return [(node.source, 0)]
        if isinstance(node, ComponentNode):
            component = self._nnet.components[node.component_index]
            return [(number - 1, int(t)) for t in getattr(component, "time_offsets", (0,))]
        return []

    def _rows(self, node: int, begin: int, end: int) -> Node:
        """The value of a node at times [begin, end)."""
        first, last = self._spans[node]
        size = DELAY if node in self._recurrent else last - first
        numbers = range((begin - first) // size, (end - 1 - first) // size + 1)
        joined = ex.concatenate([self._block(node, n) for n in numbers], 0)
        return ex.narrow(joined, 0, begin - first - numbers[0] * size, end - begin)

    def _new_block(self, number: int, block: int) -> Node:
        """A recurrent node's value at DELAY times, or another node's over all its span."""
        node, (first, last) = self._nnet.nodes[number], self._spans[number]
        begin, end = first, last
        if number in self._recurrent:
            begin, end = first + block * DELAY, min(first + (block + 1) * DELAY, last)
        if isinstance(node, InputNode):
            return self._graph.input("input", (last - first, node.dim))
        if isinstance(node, DescriptorNode):
            parts = [self._part(part, begin, end) for part in node.descriptor.parts]
            return ex.concatenate(parts, 1)
        if isinstance(node, DimRangeNode):
            return ex.narrow(self._rows(node.source, begin, end), 1, node.dim_offset, node.dim)
        sources = [self._rows(s, begin + t, end + t) for s, t in self._sources(number)]
        return self._propagate(node.component_index, ex.concatenate(sources, 1))

    def _part(self, part: SumDescriptor, begin: int, end: int) -> Node:
        """The value of a descriptor's part: a node, IfDefined of a node, or a sum of nodes."""
        terms = []
        for node, offset, scale in map(_source, _leaves([part])):
            if isinstance(part, IfDefined) and begin + offset < 0:
                return self._graph.zeros((end - begin, part.dim(self._nnet)))
            value = self._rows(node, begin + offset, end + offset)
            terms.append(value if scale == 1.0 else value * scale)
        return sum(terms[1:], start=terms[0])

    def _propagate(self, number: int, x: Node) -> Node:
        component = self._nnet.components[number]

        def parameter(name: str) -> Node:
            return self._constant(number, name)

        kind = component.type_name
        if hasattr(component, "bias_params") and len(component.bias_params):
            return ex.affine(x, parameter("linear_params"), parameter("bias_params"), False, True)
        if kind in ("TdnnComponent", "LinearComponent"):
            weights = "linear_params" if kind == "TdnnComponent" else "params"
            return ex.dot(x, parameter(weights), trans_b=True)
        if kind == "LstmNonlinearityComponent":
            return _lstm(x, parameter("params"))
        if kind == "BatchNormComponent":
            return x * parameter("test_scale") + parameter("test_offset")
        if kind == "BackpropTruncationComponent":
            return x * float(vars(component)["scale_factor"])
        return _SIMPLE[kind](x)

    def _parameter(self, component: int, name: str) -> Node:
        return self._graph.constant(getattr(self._nnet.components[component], name))


_SIMPLE: dict[str, Callable[[Node], Node]] = {
    "RectifiedLinearComponent": ex.relu,
    "LogSoftmaxComponent": ex.log_softmax,
    "NoOpComponent": lambda x: x,
    "DropoutComponent": lambda x: x,
}


def _leaves(parts: Iterable[SumDescriptor]) -> list[Leaf]:
    found: list[Leaf] = []
    for part in parts:
        found += [part] if isinstance(part, Leaf) else _leaves(part.terms)
    return found


def _source(leaf: Leaf) -> tuple[int, int, float]:
    """(node, time offset, scale) of a forwarding expression."""
    at_zero = np.zeros((1, 3), np.int32)
    nodes, indexes = leaf.source.map_to_input(at_zero)
    return int(nodes[0]), int(indexes[0, 1]), float(leaf.source.row_scales(at_zero)[0])


def _lstm(x: Node, peepholes: Node) -> Node:
    """[c(t), m(t)] of an LSTM cell, from [x_i, x_f, x_c, x_o, c(t-1)]."""
    dim = peepholes.shape[1]
    i, f, c, o, before = (ex.narrow(x, 1, n * dim, dim) for n in range(5))
    w_i, w_f, w_o = (ex.narrow(peepholes, 0, n, 1) for n in range(3))
    kept = ex.sigmoid(f + w_f * before) * before
    cell = kept + ex.sigmoid(i + w_i * before) * ex.tanh(c)
    return ex.concatenate([cell, ex.sigmoid(o + w_o * cell) * ex.tanh(cell)], 1)
