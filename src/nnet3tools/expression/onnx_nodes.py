"""Translation of nodes that are not elementwise to ONNX, one function for each type name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.leaves import Constant
from nnet3tools.expression.onnx_writer import OnnxWriter
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor.formulas import Type, dtype_of

Translate = Callable[[OnnxWriter, Any, list[str]], str]

_COPIES = "copy stop_gradient clip_gradient checkpoint named debug callback".split()
"""Type names of nodes whose value is that of their child."""


def _reduce(operator: str) -> Translate:
    def translate(w: OnnxWriter, node: Any, x: list[str]) -> str:
        value = w.cast(x[0], node.children[0].type, node.type)
        return w.emit(operator, value, w.constant([node.axis]), keepdims=1)

    return translate


def _mean_square(w: OnnxWriter, node: Any, x: list[str]) -> str:
    return _reduce("ReduceMean")(w, node, [w.emit("Mul", x[0], x[0])])


def _scalar_product(w: OnnxWriter, node: Any, x: list[str]) -> str:
    return w.emit("ReduceSum", w.emit("Mul", *x), w.constant([node.axis]), keepdims=1)


def _transposed(w: OnnxWriter, name: str, axes: int, wanted: bool) -> str:
    order = [*range(axes - 2), axes - 1, axes - 2]
    return w.emit("Transpose", name, perm=order) if wanted else name


def _dot(w: OnnxWriter, node: Any, x: list[str]) -> str:
    axes = len(node.shape)
    a = _transposed(w, x[0], axes, node.trans_a)
    b = _transposed(w, x[1], axes, node.trans_b)
    value = w.emit("MatMul", a, b)
    if node.scalar != 1.0:
        value = w.emit("Mul", value, w.constant(node.scalar, dtype_of(node.type)))
    return w.emit("Add", value, x[2]) if len(x) > 2 else value


def _slice(w: OnnxWriter, node: Any, x: list[str]) -> str:
    part = node.part
    end = part.stop if part.stop >= 0 else np.iinfo(np.int64).min
    bounds = ([part.start], [end], [node.axis], [part.step])
    return w.emit("Slice", x[0], *(w.constant(b) for b in bounds))


def _shift(w: OnnxWriter, node: Any, x: list[str]) -> str:
    n = len(node.shape)
    pads = [max(0, by) for by in node.by] + [max(0, -by) for by in node.by]
    pad = w.constant(node.pad, dtype_of(node.type))
    padded = w.emit("Pad", x[0], w.constant(pads), pad, mode="constant")
    starts = [max(0, -by) for by in node.by]
    ends = [s + size for s, size in zip(starts, node.shape, strict=True)]
    return w.emit("Slice", padded, w.constant(starts), w.constant(ends), w.constant(range(n)))


def _sort_indexes(w: OnnxWriter, node: Any, x: list[str]) -> str:
    found = w.emit(
        "TopK", x[0], w.constant([node.k]), outputs=2, axis=node.axis,
        largest=int(node.descending), sorted=1,
    )  # fmt: skip
    return w.emit("Cast", found, to=w.element_type(Type.INT32))


def _cumsum(w: OnnxWriter, node: Any, x: list[str]) -> str:
    how = {"reverse": int(node.reverse), "exclusive": int(node.exclusive)}
    return w.emit("CumSum", x[0], w.constant(node.axis), **how)


def _rms_norm(w: OnnxWriter, node: Any, x: list[str]) -> str:
    last = w.constant([len(node.shape) - 1])
    square = w.emit("ReduceMean", w.emit("Mul", x[0], x[0]), last, keepdims=1)
    floored = w.emit("Add", square, w.constant(node.eps, dtype_of(node.type)))
    value = w.emit("Div", x[0], w.emit("Sqrt", floored))
    if node.has_scale:
        value = w.emit("Mul", value, x[1])
    return w.emit("Add", value, x[-1]) if node.has_offset else value


def _layer_norm(w: OnnxWriter, node: Any, x: list[str]) -> str:
    mean = w.emit("ReduceMean", x[0], w.constant([len(node.shape) - 1]), keepdims=1)
    return _rms_norm(w, node, [w.emit("Sub", x[0], mean), *x[1:]])


def _batch_norm(w: OnnxWriter, node: Any, x: list[str]) -> str:
    columns = w.constant([0])
    centred = w.emit("Sub", x[0], w.emit("ReduceMean", x[0], columns, keepdims=1))
    square = w.emit("ReduceMean", w.emit("Mul", centred, centred), columns, keepdims=1)
    floored = w.emit("Add", square, w.constant(node.eps, dtype_of(node.type)))
    return w.emit("Div", centred, w.emit("Sqrt", floored))


def _sparse(w: OnnxWriter, node: Any, x: list[str], num_cols: int) -> str:
    """Add ONNX nodes that convert a CSR matrix to a dense one; return the dense one's name.

    x[0] is the ONNX name of the stored values. `node` is a CsrDot or DotCsr; its children 1 and 2
    say where values are in the matrix, which has `num_cols` columns.
    """
    places = node.children[2], node.children[1]
    if not all(isinstance(p, Constant) for p in places):
        shown = ", ".join(p.describe() for p in places)
        raise ExpressionError(f"ONNX needs a sparse matrix's places as constants, found {shown}")
    starts, cols = (tensor.to_host(p.value) for p in places)
    numbers = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    zeros = w.constant(np.zeros((len(starts) - 1, num_cols)), dtype_of(node.type))
    at = w.constant(np.stack([numbers, cols], 1))
    dense = w.emit("ScatterND", zeros, at, x[0], reduction="add")
    return _transposed(w, dense, 2, node.trans)


def _csr_dot(w: OnnxWriter, node: Any, x: list[str]) -> str:
    cols = node.shape[0] if node.trans else node.children[3].shape[0]
    return w.emit("MatMul", _sparse(w, node, x, cols), x[3])


def _dot_csr(w: OnnxWriter, node: Any, x: list[str]) -> str:
    cols = node.children[3].shape[1] if node.trans else node.shape[1]
    return w.emit("MatMul", x[3], _sparse(w, node, x, cols))


NODES: dict[str, Translate] = {
    "sum": _reduce("ReduceSum"),
    "mean": _reduce("ReduceMean"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "prod": _reduce("ReduceProd"),
    "logsumexp": _reduce("ReduceLogSumExp"),
    "mean_square": _mean_square,
    "rms": lambda w, node, x: w.emit("Sqrt", _mean_square(w, node, x)),
    "scalar_product": _scalar_product,
    "softmax": lambda w, node, x: w.emit("Softmax", x[0], axis=-1),
    "log_softmax": lambda w, node, x: w.emit("LogSoftmax", x[0], axis=-1),
    **dict.fromkeys(("dot", "bdot", "affine"), _dot),
    "csr_dot": _csr_dot,
    "dot_csr": _dot_csr,
    **dict.fromkeys(_COPIES, lambda w, node, x: x[0]),
    "reshape": lambda w, node, x: w.emit("Reshape", x[0], w.constant(node.shape)),
    "transpose": lambda w, node, x: w.emit("Transpose", x[0], perm=list(node.axes)),
    "slice": _slice,
    "shift": _shift,
    "concatenate": lambda w, node, x: w.emit("Concat", *x, axis=node.axis),
    "index_select": lambda w, node, x: w.emit("Gather", *x, axis=node.axis),
    "gather": lambda w, node, x: w.emit("GatherElements", *x, axis=node.axis),
    "scatter": lambda w, node, x: w.emit("ScatterElements", *x, axis=node.axis),
    "sort_indexes": _sort_indexes,
    "cumsum": _cumsum,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}
"""Type name -> function that emits the ONNX nodes and returns the name of the value."""
