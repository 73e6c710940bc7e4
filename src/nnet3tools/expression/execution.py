"""Execution: plans memory for a schedule's values and gradients, and binds its operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.expression.memory import Buffer, Scratch, allocate
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.overwritten import Overwritten, nan_check
from nnet3tools.expression.schedule import (
    Schedule,
    Step,
    gradient_owner,
    no_gradient_reason,
    value_owner,
)
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor import Array, recording
from nnet3tools.tensor.formulas import dtype_of


class Execution:
    """A planned computation: lists of operations for the values of roots and for the gradients.

    Leaves have memory of their own, except the leaves `fed`, which are set before each run. Other
    values share one block of memory, planned by their lifetimes. With `scratch`, values that the
    backward pass does not read, and gradients, use this memory; executions that share it overwrite
    each other's results. Values and gradients of nodes in `keep` are not overwritten within a run.
    If `watch` is true, NaN raises an error.
    """

    def __init__(
        self,
        roots: Sequence[Node],
        like: Array | None = None,
        gradient: bool = True,
        reuse_memory: bool = True,
        scratch: Scratch | None = None,
        fed: Iterable[Node] = (),
        keep: Iterable[Node] = (),
        watch: bool = False,
    ) -> None:
        self.roots, self._keep, self._watch = tuple(roots), tuple(keep), watch
        self.schedule = Schedule(roots, gradient and any(r.trainable for r in roots), self._keep)
        self._like, self._reuse = like, reuse_memory
        self._scratch, self._fed = scratch, frozenset(fed)
        self._steps = [*self.schedule.forward, *self.schedule.backward]
        self._values: dict[tuple[Node, int], Buffer] = {}
        self._gradients: dict[Node, Buffer] = {}
        self._first_touch: dict[Node, int] = {}
        self._find_value_lifetimes()
        self._find_gradient_lifetimes()
        self._arrays, self.num_bytes = self._allocate()
        self._seeded = [r for r in self.roots if r in self.schedule.active]
        self._zeroed = {gradient_owner(r) for r in self._seeded}
        self._forward, self._backward = self._bind()
        self._seeds = [(r, r.grad, gradient_owner(r).grad) for r in self._seeded]
        self._ran = False

    # -- lifetimes

    def _touch(self, owner: Node, incarnation: int, step: int) -> None:
        if owner.is_leaf and owner not in self._fed:
            return
        if (buffer := self._values.get((owner, incarnation))) is None:
            buffer = Buffer(owner.shape, owner.type, step, step)
            self._values[owner, incarnation] = buffer
        buffer.touch(step)

    def _find_value_lifetimes(self) -> None:
        current: dict[Node, int] = {}
        for leaf in self._fed.intersection(self.schedule.order):
            self._touch(leaf, 0, 0)
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
        end = len(self._steps) if self._scratch is None else len(self.schedule.forward) - 1
        for root in (*self.roots, *self._keep):
            owner = value_owner(root)
            self._touch(owner, current.get(owner, 0), end)

    def _find_gradient_lifetimes(self) -> None:
        start = len(self.schedule.forward)
        touched = [(r, start) for r in self.roots if r in self.schedule.active]
        for t, step in enumerate(self.schedule.backward, start):
            if step.kind == "backward":
                used = [step.node, *(c for c in step.node.children if c.trainable)]
                touched.extend((n, t) for n in used)
        for node, t in touched:
            owner = gradient_owner(node)
            self._first_touch.setdefault(owner, t)
            if owner.is_leaf and owner not in self._fed:
                continue
            buffer = self._gradients.setdefault(owner, Buffer(owner.shape, owner.type, t, t))
            buffer.touch(t if owner not in self._fed else len(self._steps))
        for owner in {gradient_owner(node) for node in self._keep} & self._gradients.keys():
            self._gradients[owner].touch(len(self._steps))

    def _allocate(self) -> tuple[dict[Buffer, Array], int]:
        """Allocate memory for all values and gradients: (array of each buffer, number of bytes)."""
        buffers = [*self._values.values(), *self._gradients.values()]
        if not self._reuse:
            for buffer in buffers:
                buffer.touch(0)
                buffer.touch(len(self._steps))
        if self._scratch is None:
            return allocate(buffers, self._like)
        border = len(self.schedule.forward)
        kept = [b for b in buffers if b.first < border <= b.last]
        arrays, size = allocate(kept, self._like)
        others = [b for b in buffers if b not in arrays]
        return arrays | allocate(others, self._like, self._scratch)[0], size

    # -- binding

    def _place_value(self, node: Node, incarnation: int) -> None:
        if node.is_value_view:
            node.value = node.view(node.children[0].value)
        elif not node.is_leaf or node in self._fed:
            node.value = self._arrays[self._values[node, incarnation]]
        elif node.value is None:
            node.value = tensor.empty(node.shape, like=self._like, dtype=dtype_of(node.type))

    def _bind(self) -> tuple[list[NodeOp], list[NodeOp]]:
        for node in self.schedule.order:
            self._place_value(node, 0)
        self._values_at = [(n, n.value, self._last_value(n)) for n in self._inner()]
        forward: list[NodeOp] = []
        for step in self.schedule.forward:
            forward.extend(step.node.forward_ops())
            if self._watch:
                forward.append(nan_check(step.node, "value", step.node.value))
        for node in self.schedule.order:
            if node in self.schedule.active:
                if node.is_gradient_view:
                    node.grad = node.view(node.children[0].grad)
                elif not node.is_leaf or node in self._fed:
                    node.grad = self._arrays[self._gradients[node]]
                elif node.grad is None:
                    node.grad = tensor.zeros(node.shape, like=node.value)
        self._gradients_at = [
            (n, n.grad, self._gradients[gradient_owner(n)].last)
            for n in self._inner()
            if n in self.schedule.active and gradient_owner(n) in self._gradients
        ]
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
        node.children_to_set = frozenset(i for i in first if self._may_be_set(node, i))
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
            if i not in node.children_to_set or made[i] is None:
                ops.append(tensor.fill.bind(gradient_owner(node.children[i]).grad, 0.0))
        pairs = zip(node.children, made, strict=bool(made))
        ops.extend(op for child, op in pairs if child.trainable and op is not None)
        if self._watch:
            ops.extend(nan_check(c, "gradient", c.grad) for c in node.children if c.trainable)
        return ops

    def _first_added(self, node: Node, t: int) -> list[int]:
        """Numbers of children whose gradients get a first term at step t; marks them as set."""
        found = []
        for i, child in enumerate(node.children):
            owner = gradient_owner(child)
            if child.trainable and self._first_touch[owner] == t and owner not in self._zeroed:
                self._zeroed.add(owner)
                found.append(i)
        return found

    def _may_be_set(self, node: Node, i: int) -> bool:
        """Whether the backward operation may set the gradient of child i instead of adding to it.

        It may not if the child is a view, or if another child shares the gradient's memory.
        """
        owners = [gradient_owner(child) for child in node.children if child.trainable]
        child = node.children[i]
        return node.overwrites and not child.is_gradient_view and owners.count(child) == 1

    def _inner(self) -> list[Node]:
        return [node for node in self.schedule.order if not node.is_leaf]

    def _last_value(self, node: Node) -> int:
        """The number of the last step for which the memory of the forward value must not change."""
        owner = value_owner(node)
        return self._values[owner, 0].last if not owner.is_leaf else len(self._steps)

    # execution

    def _settle(self, step: int) -> None:
        for node, array, last in self._values_at:
            node.value = array if last >= step else Overwritten(node, "value")
        if step == len(self._steps):
            for node, array, last in self._gradients_at:
                node.grad = array if last >= step else Overwritten(node, "gradient")

    def settle_forward(self) -> None:
        """Make reading a node's value an error if the forward pass has reused its memory."""
        self._settle(len(self.schedule.forward) - 1)

    def settle_backward(self) -> None:
        """After the backward pass, mark values and gradients in reused memory as unreadable."""
        self._settle(len(self._steps))

    def forward(self) -> None:
        """Compute the values of the roots, and set the `value` of nodes."""
        for op in self._forward:
            recording.run("expression", op)
        self._ran = True

    def backward(self, seeds: Mapping[Node, Array] | None = None) -> None:
        """Compute each node's `grad` anew; `seeds`: derivatives at the roots (default: 1)."""
        if not self._seeded:
            raise ExpressionError(no_gradient_reason(self.roots))
        if not self._ran:
            raise ProgramError("backward must follow forward, which computes what it overwrites")
        # with scratch memory, values in the arena share no memory with gradients
        self._ran = not self._reuse or self._scratch is not None
        (root, grad, _), given = self._seeds[0], seeds or {}
        if len(self._seeds) == 1 and not root.is_gradient_view and root in given:
            tensor.copy(grad, given[root])
        else:
            self._add_seeds(seeds)
        for op in self._backward:
            recording.run("expression", op)

    def _add_seeds(self, seeds: Mapping[Node, Array] | None) -> None:
        for _, _, whole in self._seeds:
            tensor.fill(whole, 0.0)
        for root, grad, _ in self._seeds:
            if seeds is None:
                _add_one(grad)
            elif root in seeds:
                tensor.add(grad, seeds[root])


_add_one = tensor.element("_1 = _1 + 1")
