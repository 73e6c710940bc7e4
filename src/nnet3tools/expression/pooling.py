"""Pooling over windows of the last one or two axes, composed of slices."""

from __future__ import annotations

import functools
from collections.abc import Callable

from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.help_text import described
from nnet3tools.expression.joins import concatenate, repeat
from nnet3tools.expression.moves import narrow, reshape, slice_
from nnet3tools.expression.node import Node
from nnet3tools.expression.reductions import max_
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.expression.softmax import MASKED

Pair = tuple[int, int]


def _padded(x: Node, axis: int, size: int, value: float) -> Node:
    """x extended along an axis by `size` elements of `value` at both ends."""
    if size == 0:
        return x
    edge = x.graph.constant([value], x.type)
    edge = reshape(edge, (1,) * len(x.shape))
    for i, n in enumerate(x.shape):
        edge = repeat(edge, size if i == axis else n, i)
    return concatenate([edge, x, edge], axis)


def _windows(x: Node, sizes: Pair, pads: Pair, strides: Pair, value: float) -> list[Node]:
    """For each position in a window, a node with the elements that all windows have there.

    Pairs are (height, width); `value` pads both ends of both axes.
    """
    if len(x.shape) < 2 or not x.type.is_float:
        raise ExpressionError(f"pooling of {x.describe()}: expected (.., height, width) of floats")
    if min(*sizes, *strides) < 1 or min(pads) < 0 or any(map(int.__ge__, pads, sizes)):
        raise ExpressionError(f"pooling: windows {sizes}, padding {pads}, strides {strides}")
    parts = [x]
    for axis, size, pad, stride in zip((-2, -1), sizes, pads, strides, strict=True):
        axis += len(x.shape)
        wide = [_padded(part, axis, pad, value) for part in parts]
        last = wide[0].shape[axis] - size
        if last < 0:
            raise ExpressionError(f"pooling: {x.describe()} is smaller than a window of {sizes}")
        parts = [slice_(part, axis, i, last + i + 1, stride) for part in wide for i in range(size)]
    return parts


def _pooling(
    kind: str, x: Node, height: int, width: int, pads: Pair, strides: Pair | None, value: float
) -> Node:
    sizes = (height, width)
    parts = _windows(x, sizes, pads, strides or sizes, value)
    combine: Callable[[Node, Node], Node] = functools.partial(apply, kind)
    return functools.reduce(combine, parts)


@described(
    "adj at the first maximum of each window, 0 elsewhere", "x (.., h, w), value (.., h', w')"
)
def max_pooling(
    x: Node, height: int, width: int, pads: Pair = (0, 0), strides: Pair | None = None
) -> Node:
    """The maximum of each window of the last two axes; by default windows do not overlap.

    `pads` and `strides` are (of rows, of columns). Of equal elements the first gets the gradient.
    Padding is never the maximum.
    """
    lowest = MASKED.get(x.type, 0.0)
    return _pooling("max", x, height, width, pads, strides, lowest)


@described("adj / (height * width) of all its windows", "x (.., h, w), value (.., h', w')")
def avg_pooling(
    x: Node, height: int, width: int, pads: Pair = (0, 0), strides: Pair | None = None
) -> Node:
    """The mean of each window of the last two axes; by default windows do not overlap.

    `pads` and `strides` are (of rows, of columns). Padding counts as zeros.
    """
    total = _pooling("add", x, height, width, pads, strides, 0.0)
    return total * (1.0 / (height * width))


@described(
    "adj * mask at the maxima, 0 elsewhere",
    "x (.., n), mask broadcasts to it, value (.., n / width, rounded up)",
)
def pooling_with_masking(x: Node, mask: Node, width: int, is_even: bool = False) -> Node:
    """The maximum of x * mask in each window of `width` columns; the last window may be narrower.

    With `is_even` the last column of x is left out, as in Marian (isEven).
    """
    count = x.shape[-1] - is_even if x.shape else 0
    if not 1 <= width or count < 1:
        raise ExpressionError(f"pooling_with_masking: windows of {width} in {x.describe()}")
    masked, axis, lead = x * mask, len(x.shape) - 1, x.shape[:-1]
    if masked.shape != x.shape:
        raise ExpressionError(
            f"pooling_with_masking: {mask.describe()} does not fit {x.describe()}"
        )
    full, rest = divmod(count, width)
    parts = []
    if full:
        windows = reshape(narrow(masked, axis, 0, full * width), (*lead, full, width))
        parts.append(reshape(max_(windows, -1), (*lead, full)))
    if rest:
        parts.append(max_(narrow(masked, axis, full * width, rest), -1))
    return concatenate(parts, axis)
