"""The semi-orthogonal constraint of factorised TDNNs (Povey et al., Interspeech 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet

__all__ = ["constrain_matrix", "constrain_orthonormal"]

_subtract = tensor.element("_1 = _1 - _2")

# of the traces of P (_3) and P P (_2): the square of a floating scale; and the factor (_1) that the
# update is multiplied by, with _4 rows: 0 for a component not in use, see _slow_down for the rest
_square = tensor.element("_1 = _2 / _3")
_factor = tensor.element(
    "ratio = _2 * _4 / (_3 * _3); "
    "speed = where(ratio <= 1.02, 1.0, where(ratio <= 1.1, 0.5, 0.25)); "
    "_1 = where(_3 < 1e-15, 0.0, -0.5 * speed * _3 / _2)"
)


def _just_do(key: Hashable, work: Callable[[], None]) -> None:
    work()


def constrain_orthonormal(
    nnet: Nnet, run: Callable[[Hashable, Callable[[], None]], None] = _just_do
) -> None:
    """Move constrained parameter matrices towards the constraint; called after each minibatch.

    Each is chosen one time in four (by Kaldi's rand), since none strays far in between. `run` does
    the work on one, given a key of it.
    """
    for name, component in nnet.updatable_components():
        constraint, params = component.orthonormal_constraint, component.input_matrix
        if constraint == 0.0 or tensor.random.rand_int(0, 3) != 0:
            continue
        run(("orthonormal constraint", name), partial(_constrain, params, constraint, name))


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
    update_speed = 0.125
    with tensor.scratch((rows, rows), like=m) as p, tensor.scratch(m.shape, like=m) as update:
        tensor.prod(p, m, m, trans_b=True)
        diagonal = p.reshape(-1)[:: rows + 1]
        if scale < 0.0:
            trace_p, trace_pp = tensor.dot(m, m), tensor.dot(p, p)
            if not isinstance(trace_p, float):  # a Number: nobody is to wait for it
                _subtract(diagonal, trace_pp.mapped(_square, trace_p))
                tensor.prod(update, p, m)
                tensor.add(m, update, alpha=trace_pp.mapped(_factor, trace_p, rows))
                return
            if trace_p < 1.0e-15:
                return  # the component is not in use
            scale = math.sqrt(trace_pp / trace_p)
            update_speed *= _slow_down(trace_pp * rows / (trace_p * trace_p), name)
        _subtract(diagonal, scale * scale)
        tensor.prod(update, p, m)
        tensor.add(m, update, alpha=-4.0 * update_speed / (scale * scale))


def _slow_down(ratio: float, name: str) -> float:
    """Factor on the speed; ratio (>= 1) says how much the eigenvalues of M M^T differ."""
    if not ratio > 0.9:
        raise ProgramError(f"component {name}: impossible ratio {ratio:g} of eigenvalues")
    if ratio <= 1.02:
        return 1.0
    log.warning(f"Ratio is {ratio:g}, slowing down the update of component {name}")
    return 0.5 if ratio <= 1.1 else 0.25
