"""Placeholders for values whose memory was reused, and checks for NaN."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor import Array


class Overwritten:
    """Placeholder for a value or gradient whose memory was reused; use raises ExpressionError."""

    def __init__(self, node: Node, kind: str) -> None:
        self._node, self._kind = node, kind

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ExpressionError(
            f"the {self._kind} of {self._node.describe()} was overwritten, its memory being used "
            "again: name the node in Graph.keep before the run, or make it a root"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # NumPy looks up protocols
        self._refuse()

    def __repr__(self) -> str:
        return f"<overwritten {self._kind} of {self._node.describe()}>"

    __array__ = __getitem__ = __len__ = __iter__ = __float__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse


def nan_check(node: Node, kind: str, array: Array) -> NodeOp:
    """An operation: ExpressionError if `array`, the node's value or gradient (`kind`), has NaN."""

    def check() -> None:
        if np.isnan(tensor.to_host(array)).any():
            raise ExpressionError(f"nan in the {kind} of {node.label}: {node.describe()}")

    return check
