"""Expression graphs: build an expression of nodes, run it, differentiate it.

    from nnet3tools import expression as ex
    g = ex.Graph()
    x, w = g.input("x", (5, 3)), g.param("w", numpy.ones((3, 2), numpy.float32))
    loss = ex.sum_(ex.sqr(x @ w), None)
    g.forward(loss, x=array); g.backward(); w.grad

Building a node checks shapes and types (ExpressionError shows the operands), and returns the
existing node if there is an equal one. `Graph.forward` plans memory and binds operations of
nnet3tools.tensor, which do all the mathematics. Elementwise kinds are the rows of the table
tensor.formulas.functions: value, derivatives, ONNX name. Any other kind is a subclass of Node with
its forward and backward operations. `Formula` builds the same from text.

The help text of an operator says its derivative by x: what is added to the gradient of x. In it,
`adj` is the gradient by the operator's value, and A' the transpose of A.
"""

from __future__ import annotations

import importlib
from typing import Any

from nnet3tools.expression.elementwise_operators import KIND_OF, elementwise_operator
from nnet3tools.expression.execution import Execution
from nnet3tools.expression.graph import Graph
from nnet3tools.expression.node import Node
from nnet3tools.expression.operators import *  # noqa: F403
from nnet3tools.expression.operators import __all__ as _operators
from nnet3tools.expression.operators import nodes_checked
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor.formulas import Type

__all__ = ["Execution", "ExpressionError", "Graph", "Node", "Type"]
__all__ += _operators

_LATER = {
    "attention": "cells", "avg_pooling": "pooling", "gru": "cells", "lstm_cell": "cells",
    "lstm_output": "cells", "max_pooling": "pooling", "pooling_with_masking": "pooling",
    "ssru": "cells",
}  # fmt: skip
"""Operators whose modules are imported at their first use, because no program uses them."""
__all__ += _LATER.keys() | KIND_OF.keys()


def __getattr__(name: str) -> Any:
    if name in KIND_OF:
        found = elementwise_operator(name)
    elif name in _LATER:
        module = importlib.import_module(f"{__name__}.{_LATER[name]}")
        found = nodes_checked(getattr(module, name))
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
