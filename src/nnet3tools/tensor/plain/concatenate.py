"""Joining and splitting on NumPy: copies between views."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from nnet3tools.tensor.concatenate import pairs_along
from nnet3tools.tensor.plain.calls import add_to, convert
from nnet3tools.tensor.plain.threads import Call
from nnet3tools.tensor.registry import implements

Arrays = Sequence[np.ndarray]


def _run(calls: list[Call]) -> None:
    for function, arguments in calls:
        function(*arguments)


@implements("concatenate", "numpy", binder=True)
def bind_concatenate(out: np.ndarray, parts: Arrays, axis: int) -> Callable[[], None]:
    """One copy a part."""
    calls = [(convert, (part, view)) for view, part in pairs_along(out, parts, axis)]
    return functools.partial(_run, calls)


@implements("split", "numpy", binder=True)
def bind_split(src: np.ndarray, parts: Arrays, axis: int) -> Callable[[], None]:
    """One copy a part."""
    calls = [(convert, (view, part)) for view, part in pairs_along(src, parts, axis)]
    return functools.partial(_run, calls)


@implements("add_split", "numpy", binder=True)
def bind_add_split(src: np.ndarray, parts: Arrays, axis: int) -> Callable[[], None]:
    """One sum a part."""
    return functools.partial(_run, [(add_to, pair) for pair in pairs_along(src, parts, axis)])
