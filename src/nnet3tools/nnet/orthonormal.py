"""The semi-orthogonal constraint of factorised TDNNs (Povey et al., Interspeech 2018)."""

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

__all__ = ["constrain_matrix", "constrain_orthonormal", "constrained_components", "just_do"]

_subtract = tensor.element("_1 = _1 - _2")

# of the traces of P P (_2) and P (_3): the square (_1) of a floating scale
_square = tensor.element("s = sqrt(_2 / _3); _1 = s * s")
# the factor (_1) of the update of _4 rows by the same and that square (_5): 0 for a component that
# is not in use; slower where the eigenvalues of M M^T differ much
_factor = tensor.element(
    "ratio = _2 * _4 / (_3 * _3); "
    "speed = where(ratio <= 1.02, 1.0, where(ratio <= 1.1, 0.5, 0.25)); "
    "_1 = where(_3 < 1e-15, 0.0, -4.0 * (0.125 * speed) / _5)"
)


def just_do(key: Hashable, work: Callable[[], None]) -> None:
    """Run nothing from recordings."""
    work()


Constrained = list[tuple[str, Any]]
"""Names and components."""


def constrained_components(nnet: Nnet) -> Constrained:
    """The components whose parameters may be constrained.

    Asking all of a large network takes 0.05 ms, which is much of what a minibatch takes on the host
    of a GPU.
    """
    pairs = zip(nnet.component_names, nnet.components, strict=True)
    return [
        (name, component)
        for name, component in pairs
        if hasattr(component, "orthonormal_constraint")
        and component.properties & Properties.UPDATABLE
    ]


def constrain_orthonormal(
    components: Constrained, run: Callable[[Hashable, Callable[[], None]], None] = just_do
) -> None:
    """Move constrained parameter matrices towards the constraint; called after each minibatch.

    Each is chosen one time in four (by Kaldi's rand), since none strays far in between. `run` does
    the work on one, given a key of it.
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
    """M -= 4 nu / scale^2 (M M^T - scale^2 I) M, in place, where M has no more rows than columns.

    Repeated, it brings the rows to be orthogonal and of length `scale`. A negative scale floats:
    it is then chosen such that the change is orthogonal to M. nu is 1/8 (the fastest convergence
    near the solution, Sec. 2.2 of the paper), less where a floating scale is far from it.
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
    """The square of a floating scale and the factor of the update, in the memory of `numbers`."""
    trace_p, trace_pp, square, factor = (numbers[i : i + 1] for i in range(4))
    rows = float(m.shape[0])
    store(trace_p, tensor.dot(m, m))
    store(trace_pp, tensor.dot(p, p))
    _square(square, trace_pp, trace_p)
    _factor(factor, trace_pp, trace_p, rows, square)
    if device_of(m) == "numpy":  # a GPU does not wait to tell
        recording.run("check ratio", partial(_check_ratio, trace_p, trace_pp, rows, name))
    return Number(square), Number(factor)


def _check_ratio(trace_p: Array, trace_pp: Array, rows: float, name: str) -> None:
    """Warn if the eigenvalues of M M^T differ much; ProgramError for what cannot be."""
    if trace_p[0] < 1.0e-15:
        return  # the component is not in use
    ratio = trace_pp[0] * rows / (trace_p[0] * trace_p[0])
    if not ratio > 0.9:
        raise ProgramError(f"component {name}: impossible ratio {ratio:g} of eigenvalues")
    if ratio > 1.02:
        log.warning(f"Ratio is {ratio:g}, slowing down the update of component {name}")
