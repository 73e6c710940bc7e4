"""Nodes that move elements without changing them, as views if possible, else as copies."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnet3tools import tensor
from nnet3tools.expression.help_text import described
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import (
    ExpressionError,
    Shape,
    normal_axis,
    shape_text,
    whole_number,
)
from nnet3tools.tensor import Array


def add_copy(out: Array, src: Array, overwrite: bool) -> NodeOp:
    """An operation that adds `src` to `out`, or with `overwrite` copies it."""
    return tensor.copy.bind(out, src) if overwrite else tensor.add.bind(out, src)


class Copy(Node):
    """A node with a copy of its operand, in separate memory."""

    type_name, overwrites = "copy", True
    values_read = frozenset(), False

    def __init__(self, x: Node) -> None:
        super().__init__([x], x.shape, x.type)

    def forward_ops(self) -> list[NodeOp]:
        return [tensor.copy.bind(self.value, self.children[0].value)]

    def backward_ops(self) -> list[NodeOp | None]:
        return [add_copy(self.children[0].grad, self.grad, 0 in self.children_to_set)]


class Reshape(Node):
    """A node with its operand's elements in another shape; the operand is contiguous."""

    type_name = "reshape"
    options = ("shape",)
    is_value_view = is_gradient_view = True

    def __init__(self, x: Node, shape: Shape) -> None:
        super().__init__([x], shape, x.type)

    def view(self, array: Array) -> Array:
        return array.reshape(self.shape)

    @property
    def is_contiguous(self) -> bool:
        return True


class Slice(Node):
    """A node with the elements of its operand at regular distances along one axis."""

    type_name = "slice"
    options = "axis", "part"
    is_value_view = is_gradient_view = True

    def __init__(self, x: Node, axis: int, part: range) -> None:
        self.axis, self.part = axis, part
        shape = (*x.shape[:axis], len(part), *x.shape[axis + 1 :])
        super().__init__([x], shape, x.type)

    def view(self, array: Array) -> Array:
        part = self.part
        stop = part.stop if part.stop >= 0 else None
        return array[(slice(None),) * self.axis + (slice(part.start, stop, part.step),)]

    @property
    def is_contiguous(self) -> bool:
        return self.axis == 0 and self.part.step == 1 and self.children[0].is_contiguous


class Transpose(Node):
    """A node with its operand's axes permuted, copied to memory of its own."""

    type_name, overwrites = "transpose", True
    options = ("axes",)
    values_read = frozenset(), False

    def __init__(self, x: Node, axes: tuple[int, ...]) -> None:
        self.axes = axes
        super().__init__([x], tuple(x.shape[a] for a in axes), x.type)

    def forward_ops(self) -> list[NodeOp]:
        return [tensor.transpose.bind(self.value, self.children[0].value, self.axes)]

    def backward_ops(self) -> list[NodeOp | None]:
        back = tuple(self.axes.index(axis) for axis in range(len(self.axes)))
        operator = tensor.transpose if 0 in self.children_to_set else tensor.add_transposed
        return [operator.bind(self.children[0].grad, self.grad, back)]


class Shift(Node):
    """A node with its operand shifted by `by` positions along each axis; gaps are padded."""

    type_name = "shift"
    options = "by", "pad"
    values_read = frozenset(), False

    def __init__(self, x: Node, by: tuple[int, ...], pad: float) -> None:
        self.by, self.pad = by, pad
        super().__init__([x], x.shape, x.type)

    def _place(self, array: Array, direction: int) -> Array:
        """View of the elements that remain: in the operand's array (-1), or in the node's (1)."""
        at = []
        for n, by in zip(self.shape, self.by, strict=True):
            s = max(-n, min(n, by * direction))
            at.append(slice(max(0, s), n + min(0, s)))
        return array[tuple(at)]

    def forward_ops(self) -> list[NodeOp]:
        source = self._place(self.children[0].value, -1)
        return [
            tensor.fill.bind(self.value, self.pad),
            tensor.copy.bind(self._place(self.value, 1), source),
        ]

    def backward_ops(self) -> list[NodeOp | None]:
        x = self.children[0]
        return [tensor.add.bind(self._place(x.grad, -1), self._place(self.grad, 1))]


# public functions


@described("adj")
def contiguous(x: Node) -> Node:
    """Return x, or a copy of x if its memory may have gaps."""
    return x if x.is_contiguous else x.graph.add(Copy(x))


@described("adj in the shape of x", "x with n elements, value `shape` with n elements")
def reshape(x: Node, shape: Sequence[int]) -> Node:
    """x with another shape; one size may be -1, which is then computed."""
    sizes, count = [whole_number(n, "reshape") for n in shape], math.prod(x.shape)
    if sizes.count(-1) == 1:
        rest = -math.prod(sizes)
        sizes[sizes.index(-1)] = count // rest if rest > 0 and count % rest == 0 else -1
    if min(sizes, default=0) < 0 or math.prod(sizes) != count:
        raise ExpressionError(f"cannot reshape {x.describe()} to {shape_text(tuple(shape))}")
    if tuple(sizes) == x.shape:
        return x
    source = x.children[0] if isinstance(x, Reshape) else contiguous(x)
    return source if tuple(sizes) == source.shape else x.graph.add(Reshape(source, tuple(sizes)))


@described("adj in the shape of x", "x with n elements, value (n)")
def flatten(x: Node) -> Node:
    """All elements of x as a vector, in row-major order."""
    return reshape(x, (math.prod(x.shape),))


@described("adj in the shape of x", "x (.., d), value (n, d)")
def flatten_2d(x: Node) -> Node:
    """x as a matrix: the last axis becomes the columns, all other axes the rows."""
    return reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


@described("adj in the shape of x", "x (..), value (1, .., 1, ..)")
def atleast_nd(x: Node, axes: int) -> Node:
    """x with axes of size 1 inserted at the front until it has `axes` axes."""
    axes = whole_number(axes, "atleast_nd")
    return reshape(x, (1,) * (axes - len(x.shape)) + x.shape)


@described(
    "adj with the axes of x", "x (.., m, n), value (.., n, m); or value axis i is axis axes[i] of x"
)
def transpose(x: Node, axes: Sequence[int] | None = None) -> Node:
    """x with its axes in the given order; by default the last two are swapped."""
    count = len(x.shape)
    if axes is None:
        if count < 2:
            return x
        axes = (*range(count - 2), count - 1, count - 2)
    order = tuple(normal_axis(a, x.shape, "transpose") for a in axes)
    if sorted(order) != list(range(count)):
        raise ExpressionError(f"transpose: {list(axes)} is no order of the axes of {x.describe()}")
    if order == tuple(range(count)):
        return x
    if isinstance(x, Transpose) and tuple(x.axes[a] for a in order) == tuple(range(count)):
        return x.children[0]
    return x.graph.add(Transpose(x, order))


@described("adj with the two axes exchanged", "x (.., m, .., n, ..), value (.., n, .., m, ..)")
def swap_axes(x: Node, axis1: int, axis2: int) -> Node:
    """x with two axes exchanged."""
    a, b = (normal_axis(axis, x.shape, "swap_axes") for axis in (axis1, axis2))
    order = list(range(len(x.shape)))
    order[a], order[b] = b, a
    return transpose(x, order)


@described("adj at the chosen elements, 0 elsewhere", "x (.., n, ..), value (.., k, ..)")
def slice_(x: Node, axis: int, begin: int | None, end: int | None = None, step: int = 1) -> Node:
    """Elements [begin, end) of x along an axis; negative numbers count as in Python."""
    axis = normal_axis(axis, x.shape, "slice")
    begin, end = (None if n is None else whole_number(n, "slice") for n in (begin, end))
    step = whole_number(step, "slice")
    if step == 0:
        raise ExpressionError("slice: the step must not be 0")
    part = range(*slice(begin, end, step).indices(x.shape[axis]))
    if part == range(x.shape[axis]):
        return x
    return x.graph.add(Slice(x, axis, part))


@described("adj at the chosen elements, 0 elsewhere", "x (.., n, ..), value (.., length, ..)")
def narrow(x: Node, axis: int, start: int, length: int) -> Node:
    """`length` elements of x from `start` along an axis."""
    axis = normal_axis(axis, x.shape, "narrow")
    start, length = whole_number(start, "narrow"), whole_number(length, "narrow")
    if start < 0 or length < 0 or start + length > x.shape[axis]:
        raise ExpressionError(
            f"narrow: [{start}, {start + length}) does not fit axis {axis} of {x.describe()}"
        )
    return slice_(x, axis, start, start + length)


@described("adj moved back, 0 where elements were moved out")
def shift(x: Node, by: Sequence[int], pad: float = 0.0) -> Node:
    """x with its elements moved by `by[i]` positions along axis i; gaps are set to `pad`."""
    if len(by) != len(x.shape):
        raise ExpressionError(f"shift: {list(by)} does not fit the axes of {x.describe()}")
    by = tuple(whole_number(n, "shift") for n in by)
    return x if not any(by) else x.graph.add(Shift(x, by, float(pad)))
