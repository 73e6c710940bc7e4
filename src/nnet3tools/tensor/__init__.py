"""Device-neutral operators over arrays. (Manual to follow in this docstring.)"""

from __future__ import annotations

from nnet3tools.tensor import functional, random
from nnet3tools.tensor.aggregate import Aggregate, aggregate
from nnet3tools.tensor.arrays import Array, asarray, empty, scratch, to_host, zeros
from nnet3tools.tensor.basics import add, copy, dot, fill, prod, scale
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.lstm import lstm_nonlinearity, lstm_nonlinearity_backprop
from nnet3tools.tensor.normalize import diff_normalize_per_row, normalize_per_row
from nnet3tools.tensor.registry import UnsupportedOperator, gaps
from nnet3tools.tensor.rows import (
    add_cols,
    add_row_ranges,
    add_rows,
    add_rows_multi,
    add_to_rows_multi,
    copy_cols,
    copy_rows,
    copy_rows_multi,
    copy_to_rows_multi,
)
from nnet3tools.tensor.softmax import (
    log_softmax,
    log_softmax_backprop,
    softmax,
    softmax_backprop,
)

__all__ = [
    "Aggregate",
    "Array",
    "Element",
    "UnsupportedOperator",
    "add",
    "add_cols",
    "add_row_ranges",
    "add_rows",
    "add_rows_multi",
    "add_to_rows_multi",
    "aggregate",
    "asarray",
    "copy",
    "copy_cols",
    "copy_rows",
    "copy_rows_multi",
    "copy_to_rows_multi",
    "diff_normalize_per_row",
    "dot",
    "element",
    "empty",
    "fill",
    "functional",
    "gaps",
    "log_softmax",
    "log_softmax_backprop",
    "lstm_nonlinearity",
    "lstm_nonlinearity_backprop",
    "normalize_per_row",
    "prod",
    "random",
    "scale",
    "scratch",
    "softmax",
    "softmax_backprop",
    "to_host",
    "zeros",
]
