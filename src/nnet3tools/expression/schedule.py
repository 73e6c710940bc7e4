"""The order of computation: forward steps, backward steps, recomputation for checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from nnet3tools.expression.node import Node
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.fast_dataclasses import dataclass


def topological(roots: Sequence[Node]) -> list[Node]:
    """Every node that the roots depend on, children first; ExpressionError for a cycle."""
    order: list[Node] = []
    state: dict[Node, bool] = {}
    """False while a node is on the stack, True when it is finished."""
    for root in roots:
        stack = [(root, iter(root.children))]
        state.setdefault(root, False)
        if state[root]:
            continue
        while stack:
            node, children = stack[-1]
            if (child := next(children, None)) is None:
                stack.pop()
                state[node] = True
                order.append(node)
            elif child not in state:
                state[child] = False
                stack.append((child, iter(child.children)))
            elif not state[child]:
                path = [n for n, _ in stack]
                cycle = path[path.index(child) :]
                raise ExpressionError(
                    "cycle: " + " -> ".join(n.label for n in reversed([child, *cycle[1:], child]))
                )
    return order


def value_owner(node: Node) -> Node:
    """The node whose memory holds a node's value: itself or, for a view, the operand's owner."""
    while node.is_value_view:
        node = node.children[0]
    return node


def gradient_owner(node: Node) -> Node:
    """The node whose memory holds a node's gradient: itself or, for a view, the operand's owner."""
    while node.is_gradient_view:
        node = node.children[0]
    return node


def no_gradient_reason(roots: Sequence[Node]) -> str:
    """A sentence that says why none of the roots has a gradient, for an error message."""
    shown = ", ".join(r.describe() for r in roots)
    for node in reversed(topological(roots)):
        if not node.trainable and any(c.trainable for c in node.children):
            return f"no gradient: {node.describe()}, on the way to {shown}, has none"
    return f"no gradient: {shown} depends on no parameter or trainable input"


@dataclass(frozen=True)
class Step:
    """A node and the work done for it.

    `kind` is "forward", "again" (the value is recomputed for the backward pass) or "backward".
    """

    kind: str
    node: Node


class Schedule:
    """The order of steps that compute values of `roots` and `keep`, and gradients if `gradient`."""

    def __init__(self, roots: Sequence[Node], gradient: bool, keep: Iterable[Node] = ()) -> None:
        self.roots, self._kept = tuple(roots), tuple(keep)
        self.order = topological((*roots, *self._kept))
        inner = [n for n in self.order if not n.is_leaf]
        self.forward = [Step("forward", n) for n in inner]
        self.active: set[Node] = self._find_active() if gradient else set()
        """Nodes that receive a gradient."""

        self.backward = self._backward_steps() if gradient else []

    def _find_active(self) -> set[Node]:
        active = {root for root in self.roots if root.trainable}
        for node in reversed(self.order):
            if node in active:
                active.update(c for c in node.children if c.trainable)
        return active

    def _backward_steps(self) -> list[Step]:
        segments = self._segments()
        again = self._recomputed(segments)
        steps: list[Step] = []
        for node in reversed(self.order):
            if node.is_leaf or node not in self.active:
                continue
            nodes = again.pop(segments[node], [])
            steps.extend(Step("again", n) for n in nodes)
            steps.append(Step("backward", node))
        return steps

    def _segments(self) -> dict[Node, int]:
        """For each node, the number of checkpoints that precede it in the order (its segment)."""
        number, found = 0, {}
        for node in self.order:
            found[node] = number
            number += node.type_name == "checkpoint"
        return found

    def _recomputed(self, segments: dict[Node, int]) -> dict[int, list[Node]]:
        """Segment -> the nodes to recompute, in order, before its gradients; all but the last one.

        Leaves, checkpoints, roots, nodes that must not be recomputed, and values used in other
        segments are stored. Of the rest, the nodes whose values the gradients need are recomputed.
        """
        last = max(segments.values(), default=0)
        if last == 0:
            return {}
        lost = self._lost(segments, last)
        needed: set[Node] = set()
        for node in self.order:
            if node in self.active and not node.is_leaf:
                children, own = node.backward_reads()
                read = [node.children[i] for i in children] + ([node] if own else [])
                needed.update(value_owner(n) for n in read)
        again: dict[int, list[Node]] = defaultdict(list)
        for node in reversed(self.order):
            owner = value_owner(node)
            if owner in needed and owner in lost and not node.is_leaf:
                again[segments[node]].append(node)
                if not node.is_value_view:
                    needed.update(value_owner(c) for c in node.children)
        return {s: nodes[::-1] for s, nodes in again.items()}

    def _lost(self, segments: dict[Node, int], last: int) -> set[Node]:
        """Nodes whose values are not kept for backward steps; segments[n]: checkpoints before n."""
        kept = {value_owner(n) for n in self.order if n.type_name == "checkpoint"}
        kept.update(value_owner(node) for node in (*self.roots, *self._kept))
        for node in self.order:
            owner = value_owner(node)
            if node.is_leaf or not node.recomputable or segments[node] == last:
                kept.add(owner)
            if segments[owner] != segments[node]:
                kept.add(owner)
            for child in node.children:
                if segments[child] != segments[node]:
                    kept.add(value_owner(child))
        return {value_owner(n) for n in self.order} - kept
