"""Copies, fills, sums and the inner product on CUDA: formulas, most of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.element import element
from nnet3tools.tensor.number import Number
from nnet3tools.tensor.registry import implements

_copy = element("_1 = _2")
_scale = element("_1 *= _2")
_add = element("_1 += _2")
_add_scaled = element("_1 += _2 * _3")
# a factor 0 stands for "do not": what it is multiplied with may be infinite
_add_if = {
    "float32": element("_1 += where(_3 != 0, _2 * float32(_3), 0)"),
    "float64": element("_1 += where(_3 != 0, _2 * _3, 0)"),
}
_dot = aggregate("float64(_1) * float64(_2)", "sum", axis=None)


implements("copy", "cupy", binder=True)(_copy.bind)
implements("fill", "cupy", binder=True)(_copy.bind)
implements("scale", "cupy", binder=True)(_scale.bind)
implements("dot", "cupy", binder=True)(_dot.bind)


@implements("add", "cupy", binder=True)
def bind_add(out: Array, src: Array, alpha: Any = 1.0) -> Callable[[], None]:
    """Bind the operator `add`: out += alpha * src; alpha may be a Number on the device."""
    if isinstance(alpha, Number):
        return _add_if[out.dtype.name].bind(out, src, alpha.array)
    return _add.bind(out, src) if alpha == 1.0 else _add_scaled.bind(out, src, float(alpha))
