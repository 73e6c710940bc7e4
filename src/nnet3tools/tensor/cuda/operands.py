"""Operands of kernels on CUDA: arguments and views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.strides import is_array


def arguments(values: Sequence[Any]) -> list[Any]:
    """Values as kernel arguments: addresses of arrays, int64 for integers, float64 for floats."""
    return [
        np.uint64(address(v)) if is_array(v)
        else np.float64(v) if isinstance(v, (float, np.floating))
        else np.int64(v)
        for v in values
    ]  # fmt: skip


def last_axis(array: Any, axis: int) -> Any:
    """A view with four axes: axes of size 1 in front, then the array's other axes, then `axis`."""
    if array.ndim > 4:
        raise ProgramError(f"an operator along an axis of an array of {array.ndim} axes")
    axis %= array.ndim
    order = [*(i for i in range(array.ndim) if i != axis), axis]
    return array.transpose(order)[(None,) * (4 - array.ndim)]
