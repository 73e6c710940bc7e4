"""Execution: memory for a schedule's values and gradients, and the bound operations in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.expression.memory import Buffer, allocate
from nnet3tools.expression.node import Expr, NodeOp
from nnet3tools.expression.schedule import (
    Schedule,
    Step,
    gradient_owner,
    no_gradient_reason,
    value_owner,
)
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor import Array
from nnet3tools.tensor.functional import dtype_of

__all__ = ["Execution"]


class Execution:
    """Two flat lists of operations that compute the roots, and their gradients backwards.

    `values` and `grads` are arrays of the caller's that nodes are to use (inputs, roots, leaves);
    leaves without get memory of their own, all else shares one arena by liveness.
    """

    def __init__(
        self,
        roots: Sequence[Expr],
        like: Array | None = None,
        gradient: bool = True,
        values: Mapping[Expr, Array] | None = None,
        grads: Mapping[Expr, Array] | None = None,
        reuse_memory: bool = True,
    ) -> None:
        self.roots = tuple(roots)
        self.schedule = Schedule(roots, gradient and any(r.trainable for r in roots))
        self._like, self._reuse = like, reuse_memory
        self._given_values, self._given_grads = dict(values or {}), dict(grads or {})
        self._steps = [*self.schedule.forward, *self.schedule.backward]
        self._values: dict[tuple[Expr, int], Buffer] = {}
        self._gradients: dict[Expr, Buffer] = {}
        self._first_touch: dict[Expr, int] = {}
        self._find_value_lives()
        self._find_gradient_lives()
        buffers = [*self._values.values(), *self._gradients.values()]
        if not reuse_memory:
            for buffer in buffers:
                buffer.touch(0)
                buffer.touch(len(self._steps))
        self._arrays, self.num_bytes = allocate(buffers, like)
        self._seeded = [r for r in self.roots if r in self.schedule.active]
        self._zeroed = {gradient_owner(r) for r in self._seeded}
        self._forward, self._backward = self._bind()
        self._ran = False

    # -- lifetimes

    def _touch(self, owner: Expr, incarnation: int, step: int) -> None:
        if owner.is_leaf or owner in self._given_values:
            return
        buffer = self._values.get((owner, incarnation))
        if buffer is None:
            buffer = Buffer(owner.shape, owner.type, step, step)
            self._values[owner, incarnation] = buffer
        buffer.touch(step)

    def _find_value_lives(self) -> None:
        current: dict[Expr, int] = {}
        for t, step in enumerate(self._steps):
            node = step.node
            if step.kind == "backward":
                children, own = node.backward_reads()
                read = [node.children[i] for i in children] + ([node] if own else [])
            else:
                read = [*node.children, node]
                if step.kind == "again" and not node.is_value_view:
                    current[node] = 1
            for n in read:
                owner = value_owner(n)
                self._touch(owner, current.get(owner, 0), t)
        for root in self.roots:
            owner = value_owner(root)
            self._touch(owner, current.get(owner, 0), len(self._steps))

    def _find_gradient_lives(self) -> None:
        start = len(self.schedule.forward)
        touched = [(r, start) for r in self.roots if r in self.schedule.active]
        for t, step in enumerate(self.schedule.backward, start):
            if step.kind == "backward":
                used = [step.node, *(c for c in step.node.children if c.trainable)]
                touched.extend((n, t) for n in used)
        for node, t in touched:
            owner = gradient_owner(node)
            self._first_touch.setdefault(owner, t)
            if owner.is_leaf or owner in self._given_grads:
                continue
            buffer = self._gradients.setdefault(owner, Buffer(owner.shape, owner.type, t, t))
            buffer.touch(t)

    # -- binding

    def _place_value(self, node: Expr, incarnation: int) -> None:
        if node in self._given_values:
            node.value = self._given_values[node]
        elif node.is_value_view:
            node.value = node.view(node.children[0].value)
        elif not node.is_leaf:
            node.value = self._arrays[self._values[node, incarnation]]
        elif node.value is None:
            node.value = tensor.empty(node.shape, like=self._like, dtype=dtype_of(node.type))

    def _place_gradient(self, node: Expr) -> None:
        if node in self._given_grads:
            node.grad = self._given_grads[node]
        elif node.is_gradient_view:
            node.grad = node.view(node.children[0].grad)
        elif not node.is_leaf:
            node.grad = self._arrays[self._gradients[node]]
        elif node.grad is None:
            node.grad = tensor.zeros(node.shape, like=node.value)

    def _bind(self) -> tuple[list[NodeOp], list[NodeOp]]:
        for node in self.schedule.order:
            self._place_value(node, 0)
        forward = [op for step in self.schedule.forward for op in step.node.forward_ops()]
        for node in self.schedule.order:
            if node in self.schedule.active:
                self._place_gradient(node)
        backward: list[NodeOp] = []
        for t, step in enumerate(self.schedule.backward, len(self.schedule.forward)):
            backward.extend(self._bind_backward(step, t))
        return forward, backward

    def _bind_backward(self, step: Step, t: int) -> list[NodeOp]:
        node = step.node
        if step.kind == "again":
            self._place_value(node, 1)
            return node.forward_ops()
        first = self._first_added(node, t)
        node.fresh = frozenset(i for i in first if self._may_be_set(node, i))
        if node.is_gradient_view:
            made: list[NodeOp | None] = []
        else:
            made = node.backward_ops()
            if len(made) != len(node.children):
                raise ProgramError(
                    f"{node.type_name} has {len(made)} backward operations for "
                    f"{len(node.children)} children"
                )
        ops: list[NodeOp] = []
        for i in first:
            if i not in node.fresh or made[i] is None:
                ops.append(tensor.fill.bind(gradient_owner(node.children[i]).grad, 0.0))
        pairs = zip(node.children, made, strict=bool(made))
        return ops + [op for child, op in pairs if child.trainable and op is not None]

    def _first_added(self, node: Expr, t: int) -> list[int]:
        """Numbers of the children whose gradient nothing has been added to before step t."""
        found = []
        for i, child in enumerate(node.children):
            owner = gradient_owner(child)
            if child.trainable and self._first_touch[owner] == t and owner not in self._zeroed:
                self._zeroed.add(owner)
                found.append(i)
        return found

    def _may_be_set(self, node: Expr, i: int) -> bool:
        """Whether the i-th backward operation may set the whole gradient instead of adding to it.

        Not where it reaches a part of it only, nor where another child has the same memory.
        """
        owners = [gradient_owner(child) for child in node.children if child.trainable]
        child = node.children[i]
        return node.overwrites and not child.is_gradient_view and owners.count(child) == 1

    # -- running

    def forward(self) -> None:
        """Compute the roots' values."""
        for op in self._forward:
            op()
        self._ran = True

    def backward(self, seeds: Mapping[Expr, Array] | None = None) -> None:
        """Compute gradients, given the derivatives by the roots (default: all 1)."""
        if not self._seeded:
            raise ExpressionError(no_gradient_reason(self.roots))
        if not self._ran:
            raise ProgramError("backward must follow forward, which computes what it overwrites")
        self._ran = not self._reuse
        root = self._seeded[0]
        if len(self._seeded) == 1 and not root.is_gradient_view and root in (seeds or ()):
            tensor.copy(root.grad, seeds[root])
        else:
            self._add_seeds(seeds)
        for op in self._backward:
            op()

    def _add_seeds(self, seeds: Mapping[Expr, Array] | None) -> None:
        for root in self._seeded:
            tensor.fill(gradient_owner(root).grad, 0.0)
        for root in self._seeded:
            if seeds is None:
                _add_one(root.grad)
            elif root in seeds:
                tensor.add(root.grad, seeds[root])


_add_one = tensor.element("_1 = _1 + 1")
