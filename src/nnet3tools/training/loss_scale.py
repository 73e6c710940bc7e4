"""Loss scaling for --gpu-math=fp16: derivatives are multiplied before their products lose them.

Half precision has no numbers below 6e-8 and none above 65,504. The derivatives at the outputs are
multiplied by a power of two, and the parameter change is divided by this factor. If the change is
not finite, the factor was too large: the change is not applied and the factor is halved. After a
thousand finite changes the factor is doubled (Micikevicius et al. 2018, "Mixed precision
training").
Formulas on the device decide this; the host does not wait.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from nnet3tools import tensor
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.derivative_scale import scaled_derivatives
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.orthonormal import run_now
from nnet3tools.tensor.number import Number

Run = Callable[[Hashable, Callable[[], None]], None]

_START = 256.0
"""Kaldi's objective is a sum over frames, so that derivatives at the output are about 1 already."""
_LARGEST, _SMALLEST = 2.0**24, 2.0**-14
_PATIENCE = 1000
"""The number of successive good minibatches after which the factor is doubled."""

_times = tensor.element("_1 *= _2")
_divided = tensor.element("_1 = _1 / _2")
# factor (_1), good minibatches in a row (_2), those left out (_3), by the update's factor (_4),
# which is 0 where it was not applied; _5 is how many good ones it takes
_adjust = tensor.element(
    "good = where(_4 != 0, _2 + 1.0, 0.0); grow = good >= _5; "
    f"_1 = where(_4 != 0, where(grow, min(_1 * 2.0, {_LARGEST}), _1), max(_1 * 0.5, {_SMALLEST})); "
    "_2 = where(grow, 0.0, good); _3 += where(_4 != 0, 0.0, 1.0)"
)


class LossScale:
    """The loss-scaling factor of one trainer: a number on the device, adapted after each update."""

    def __init__(self, like: Array, start: float = _START, patience: int = _PATIENCE) -> None:
        """Begin with the factor `start` on the device of the array `like`.

        After `patience` finite changes the factor is doubled.
        """
        state = tensor.zeros((3,), like=like, dtype=np.float64)
        self._scale, self._good, self._left_out = (state[i : i + 1] for i in range(3))
        tensor.fill(self._scale, start)
        self._number = Number(self._scale)
        self._patience = patience

    def scale_derivative(self, deriv: Array) -> None:
        """Multiply an output's derivative, in place, by the loss-scaling factor."""
        _times(deriv, self._number)

    @contextmanager
    def backward(self, delta: Nnet, keeps_change: bool, run: Run = run_now) -> Iterator[None]:
        """Scope of a backward pass with scaled derivatives, which ends by unscaling `delta`.

        If `keeps_change`, `delta` contains a change at the start, as with momentum. `run(key,
        work)` calls `work()`, or records and replays the work.
        """
        if keeps_change:
            run("scale parameters", partial(self._for_parameters, delta, _times))
        with scaled_derivatives(self._number):
            yield
        run("parameters without scale", partial(self._for_parameters, delta, _divided))

    def _for_parameters(self, delta: Nnet, formula: tensor.Element) -> None:
        for _, component in delta.updatable_components():
            for array in component.parameters().values():
                formula(array, self._number)

    def adjust(self, factor: Array) -> None:
        """Adapt the loss scale after an update; `factor` (1,) is 0 if the change was not finite."""
        _adjust(self._scale, self._good, self._left_out, factor, float(self._patience))

    def print(self) -> None:
        """Log the final loss-scaling factor and its counts; waits for the device."""
        scale, left_out = (float(tensor.to_host(a)[0]) for a in (self._scale, self._left_out))
        log.log(
            f"Loss scaling: the factor is {scale:g}; {left_out:g} parameter changes were not "
            "finite in half precision and not applied."
        )
