"""The semi-orthogonal constraint of factorized TDNNs (Povey et al., Interspeech 2018)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array, Properties
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor import recording
from nnet3tools.tensor.number import Number, store
from nnet3tools.tensor.registry import device_of

_subtract = tensor.element("_1 = _1 - _2")

# _1: square of a floating scale, from the traces of P P (_2) and P (_3)
_square = tensor.element("s = sqrt(_2 / _3); _1 = s * s")
# _1: factor of the update, from the traces, the number of rows (_4) and the square of the scale
# (_5). It is 0 for an unused component, smaller if eigenvalues of M M^T differ much.
_factor = tensor.element(
    "ratio = _2 * _4 / (_3 * _3); "
    "speed = where(ratio <= 1.02, 1.0, where(ratio <= 1.1, 0.5, 0.25)); "
    "_1 = where(_3 < 1e-15, 0.0, -4.0 * (0.125 * speed) / _5)"
)


def run_now(key: Hashable, work: Callable[[], None]) -> None:
    """Call `work` at once; in place of Replayer.run(key, work), which records and replays it."""
    work()


Constrained = list[tuple[str, Any]]
"""(name, component) pairs."""


def constrained_components(nnet: Nnet) -> Constrained:
    """The (name, component) of all components that may have an orthonormal constraint.

    Callers keep the list: the search takes 0.05 ms in a large network, much of the host's time for
    a minibatch on a GPU.
    """
    pairs = zip(nnet.component_names, nnet.components, strict=True)
    return [
        (name, component)
        for name, component in pairs
        if hasattr(component, "orthonormal_constraint")
        and component.properties & Properties.UPDATABLE
    ]


def constrain_orthonormal(
    components: Constrained, run: Callable[[Hashable, Callable[[], None]], None] = run_now
) -> None:
    """Move parameter matrices of `components` toward the constraint; called after each minibatch.

    Each matrix is chosen one time in four (by Kaldi's rand), because it changes little in between.
    `run(key, work)` calls `work`, which changes one matrix; `key` identifies it.
    """
    for name, component in components:
        constraint = component.orthonormal_constraint
        if constraint != 0.0 and tensor.random.rand_int(0, 3) == 0:
            work = partial(_constrain, component.input_matrix, constraint, name)
            run(("orthonormal constraint", name), work)


def _constrain(params: Array, constraint: float, name: str) -> None:
    rows, columns = params.shape
    if rows <= columns:
        constrain_matrix(params, constraint, name)
        return
    with tensor.scratch((columns, rows), like=params) as transposed:
        tensor.transpose(transposed, params, (1, 0))
        constrain_matrix(transposed, constraint, name)
        tensor.transpose(params, transposed, (1, 0))


def constrain_matrix(m: Array, scale: float, name: str) -> None:
    """M -= 4 nu / scale^2 (M M^T - scale^2 I) M in place, for M with rows <= columns.

    Repeated calls make the rows orthogonal with length `scale`. If the scale is negative
    ("floating"), the actual scale makes the change orthogonal to M. nu is 1/8 (fastest convergence
    near the solution, Sec. 2.2 of the paper), less if a floating scale is far from it.
    """
    if scale == 0.0:
        raise ProgramError("the orthonormal constraint must not be zero")
    rows = m.shape[0]
    with (
        tensor.scratch((rows, rows), like=m) as p,
        tensor.scratch(m.shape, like=m) as update,
        tensor.scratch((4,), like=m, dtype=np.float64) as numbers,
    ):
        tensor.prod(p, m, m, trans_b=True)
        square, factor = scale * scale, -0.5 / (scale * scale)
        if scale < 0.0:
            square, factor = _floating(m, p, numbers, name)
        _subtract(p.reshape(-1)[:: rows + 1], square)
        tensor.prod(update, p, m)
        tensor.add(m, update, alpha=factor)


def _floating(m: Array, p: Array, numbers: Array, name: str) -> tuple[Any, Any]:
    """The squared scale that makes the change orthogonal to m, and the change's factor (Numbers).

    They are views of `numbers` (4,), scratch memory on m's device. `p` is m m^T, `name` the layer.
    """
    trace_p, trace_pp, square, factor = (numbers[i : i + 1] for i in range(4))
    rows = float(m.shape[0])
    store(trace_p, tensor.dot(m, m))
    store(trace_pp, tensor.dot(p, p))
    _square(square, trace_pp, trace_p)
    _factor(factor, trace_pp, trace_p, rows, square)
    if device_of(m) == "numpy":  # the check would make a GPU wait
        recording.run("check ratio", partial(_check_ratio, trace_p, trace_pp, rows, name))
    return Number(square), Number(factor)


def _check_ratio(trace_p: Array, trace_pp: Array, rows: float, name: str) -> None:
    """Warn if the eigenvalues of P = M M^T differ much; ProgramError if they are impossible.

    The ratio `rows` * tr(PP) / tr(P)^2, 1 if all are equal, must be above 0.9 and at most 1.02.
    """
    if trace_p[0] < 1.0e-15:
        return  # the component is unused
    ratio = trace_pp[0] * rows / (trace_p[0] * trace_p[0])
    if not ratio > 0.9:
        raise ProgramError(f"component {name}: impossible ratio {ratio:g} of eigenvalues")
    if ratio > 1.02:
        log.warning(f"Ratio is {ratio:g}, slowing down the update of component {name}")
