"""Optimizers of a graph's parameters: SGD with momentum, Adagrad, Adam, AdamW.

    optimizer = Adam(g, 0.001, schedule=WarmUp(100), clip_norm=1.0)
    g.forward(loss, x=array); g.backward(); optimizer.update()
    g.save("model.npz"); optimizer.save("state.npz")

Training that loads both files goes on bit for bit. Updates are formulas of the tensor layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.expression.graph import Graph, clip_norm
from nnet3tools.expression.parameter_files import read_arrays, write_arrays
from nnet3tools.expression.schedules import Schedule
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor import Array

Slots = Mapping[str, Array]
"""The arrays of an optimizer for one parameter, by name."""

_clip_elements = tensor.element("_1 = clip(_1, -_2, _2)")
_add_part = tensor.element("_1 += _2 * _3")
_move = tensor.element("_1 += (_2 - _1) * _3")


@dataclass
class Optimizer:
    """Base class of optimizers: when and with what gradients and rate parameters are updated.

    The learning rate of an update is `learning_rate` times the factor of `schedule`. Gradients are
    averaged over `accumulate` backward passes; then each element is clipped to [-clip_element,
    clip_element], and all gradients together to a norm of at most `clip_norm` (0: no clipping).
    With `smoothing` > 0 (Marian's --exponential-smoothing), each update also moves averages of the
    parameters by this part, or in the first updates by a larger part, toward the parameters.
    """

    graph: Graph
    learning_rate: float
    _: KW_ONLY
    schedule: Schedule | None = None
    clip_norm: float = 0.0
    clip_element: float = 0.0
    smoothing: float = 0.0
    accumulate: int = 1
    num_updates: int = field(default=0, init=False)
    """Number of updates made."""
    num_waiting: int = field(default=0, init=False)
    """Number of backward passes whose gradients wait for the next update."""
    state: dict[str, dict[str, Array]] = field(default_factory=dict, init=False)
    """For each trained parameter, the arrays of the optimizer by name."""

    SLOTS: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays, of a parameter's shape, that begin as zeros."""
    RANGES: ClassVar[dict[str, tuple[float, float]]] = {
        "learning_rate": (0.0, math.inf), "clip_norm": (0.0, math.inf),
        "clip_element": (0.0, math.inf), "smoothing": (0.0, 1.0), "accumulate": (1, math.inf),
    }  # fmt: skip
    """Option -> the smallest value, and the smallest that is too large."""
    POSITIVE: ClassVar[tuple[str, ...]] = ("eps",)
    """Options that must not be 0, because an update divides by them."""

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise ExpressionError(f"{kind}: schedule must be a Schedule, found {self.schedule!r}")
        if type(self.accumulate) is not int:
            raise ExpressionError(f"{kind}: accumulate must be an integer, found {self.accumulate}")
        for name, (low, high) in self.RANGES.items():
            value = getattr(self, name)
            if not low <= value < high or (value == 0 and name in self.POSITIVE):
                below = f"{'(' if name in self.POSITIVE else '['}{low:g}, {high:g})"
                raise ExpressionError(f"{kind}: {name} must be in {below}, found {value}")

    def update(self) -> bool:
        """Use the gradients of the last backward pass; returns whether parameters were updated.

        They are not while gradients are accumulated.
        """
        self._begin_state()
        gradients = self.graph.gradients()
        if self.accumulate > 1:
            for name, gradient in gradients.items():
                _add_part(self.state[name]["gradient"], gradient, 1.0 / self.accumulate)
            self.num_waiting += 1
            if self.num_waiting < self.accumulate:
                return False
            gradients = {name: slots["gradient"] for name, slots in self.state.items()}
        if self.clip_element:
            for gradient in gradients.values():
                _clip_elements(gradient, self.clip_element)
        if self.clip_norm:
            clip_norm(gradients.values(), self.clip_norm)
        self.num_updates += 1
        factor = 1.0 if self.schedule is None else self.schedule(self.num_updates)
        for name, gradient in gradients.items():
            value = self.graph.params[name].value
            self._step(value, gradient, self.state[name], self.learning_rate * factor)
        self._end_update()
        return True

    def _step(self, value: Array, gradient: Array, slots: Mapping[str, Array], rate: float) -> None:
        """Update one parameter's `value` and its state, the arrays `slots`, in place."""
        raise NotImplementedError

    def _begin_state(self) -> None:
        """Make the arrays in `state` for each trained parameter that has none yet."""
        for name, param in self.graph.params.items():
            if not param.trainable or name in self.state:
                continue
            names = (*self.SLOTS, *(["gradient"] if self.accumulate > 1 else []))
            slots = {n: tensor.zeros(param.shape, like=param.value) for n in names}
            if self.smoothing:
                slots["average"] = tensor.empty(param.shape, like=param.value)
                tensor.copy(slots["average"], param.value)
            self.state[name] = slots

    def _end_update(self) -> None:
        part = max(self.smoothing, 9.0 / (self.num_updates + 10.0))
        for name, slots in self.state.items():
            if self.smoothing:
                _move(slots["average"], self.graph.params[name].value, part)
            if self.num_waiting:
                tensor.fill(slots["gradient"], 0.0)
        self.num_waiting = 0

    @contextmanager
    def smoothed(self) -> Iterator[None]:
        """In the `with` block, parameters have the values of their moving averages."""
        if not self.smoothing:
            raise ExpressionError(f"{type(self).__name__} was made without smoothing")
        self._begin_state()
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        """Exchange the values of the parameters and of their averages."""
        for name, slots in self.state.items():
            value = self.graph.params[name].value
            with tensor.scratch(value.shape, like=value) as kept:
                tensor.copy(kept, value)
                tensor.copy(value, slots["average"])
                tensor.copy(slots["average"], kept)

    def save(self, path: str) -> None:
        """Write the state to an .npz file, from which `load` resumes bit for bit.

        Options and schedule are not part of it.
        """
        self._begin_state()
        kind = type(self).__name__
        counts = np.array([self.num_updates, self.num_waiting, self.accumulate])
        arrays = {key: tensor.to_host(array) for key, (_, array) in self._arrays_by_key().items()}
        write_arrays(path, {f"{kind}.updates": counts, **arrays})

    def _arrays_by_key(self) -> dict[str, tuple[str, Array]]:
        """The key in a file of each array of the state -> (name of its parameter, array)."""
        kind = type(self).__name__
        return {
            f"{kind}.{slot}.{name}": (name, array)
            for name, slots in self.state.items()
            for slot, array in slots.items()
        }

    def load(self, path: str) -> None:
        """Read the state from a file; UserError if it is of another optimizer or model."""
        self._begin_state()
        found, own, kind = read_arrays(path), self._arrays_by_key(), type(self).__name__
        counts = found.pop(f"{kind}.updates", np.zeros(0))
        if counts.shape != (3,) or counts.dtype.kind != "i" or counts.min() < 0:
            others = [key.removesuffix(".updates") for key in found if key.endswith(".updates")]
            raise UserError(
                f"{path}: expected the state of {kind}, found {' '.join(others) or 'none'}"
            )
        for key in sorted(found.keys() ^ own.keys()):
            slot, _, name = key.removeprefix(f"{kind}.").partition(".")
            lack = "the graph or optimizer" if key in found else "the file"
            raise UserError(f"{path}: {lack} has no {slot} of parameter '{name}'")
        for key, (name, array) in own.items():
            if ((new := found[key]).shape, new.dtype) != (array.shape, array.dtype):
                raise UserError(
                    f"{path}: parameter '{name}' is {new.dtype} {new.shape}, "
                    f"expected {array.dtype} {array.shape}"
                )
        updates, waiting, accumulate = (int(count) for count in counts)
        if waiting and accumulate != self.accumulate:
            raise UserError(f"{path}: accumulate is {accumulate}, expected {self.accumulate}")
        for key, (_, array) in own.items():
            tensor.copy(array, tensor.asarray(found[key], like=array))
        self.num_updates, self.num_waiting = updates, waiting


_momentum = tensor.element(
    "v = mu * v + g; p = p - rate * (look * g + ahead * v)", "v p g mu look ahead rate"
)
_adagrad = tensor.element("s = s + sqr(g); p = p - rate * (g / (sqrt(s) + eps))", "s p g rate eps")
_adam = tensor.element(
    "m = beta1 * m + part1 * g; s = beta2 * s + part2 * sqr(g);"
    "p = p * keep - rate * (m / (sqrt(s) / root + eps))",
    "m s p g beta1 part1 beta2 part2 keep rate root eps",
)


@dataclass
class SGD(Optimizer):
    """Gradient descent: v = momentum * v + g; p = p - rate * v.

    With `nesterov`, the change is -rate * (g + momentum * v).
    """

    momentum: float = 0.0
    nesterov: bool = False

    SLOTS = ("velocity",)
    RANGES: ClassVar = Optimizer.RANGES | {"momentum": (0.0, 1.0)}

    def _step(self, value: Array, gradient: Array, slots: Mapping[str, Array], rate: float) -> None:
        look, ahead = (1.0, self.momentum) if self.nesterov else (0.0, 1.0)
        _momentum(slots["velocity"], value, gradient, self.momentum, look, ahead, rate)


@dataclass
class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): s = s + g * g; p = p - rate * g / (sqrt(s) + eps)."""

    eps: float = 1e-8

    SLOTS = ("square_sum",)
    RANGES: ClassVar = Optimizer.RANGES | {"eps": (0.0, math.inf)}

    def _step(self, value: Array, gradient: Array, slots: Mapping[str, Array], rate: float) -> None:
        _adagrad(slots["square_sum"], value, gradient, rate, self.eps)


@dataclass
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015): p = p - rate * m / (sqrt(s) + eps).

    m and s are the moving averages of g and g * g, divided by 1 - beta ** updates.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    SLOTS = ("mean", "mean_square")
    RANGES: ClassVar = Optimizer.RANGES | {
        "beta1": (0.0, 1.0), "beta2": (0.0, 1.0), "eps": (0.0, math.inf)
    }  # fmt: skip

    def _step(self, value: Array, gradient: Array, slots: Mapping[str, Array], rate: float) -> None:
        _adam(
            slots["mean"], slots["mean_square"], value, gradient,
            self.beta1, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2, self._kept(rate),
            rate / (1.0 - self.beta1**self.num_updates),
            math.sqrt(1.0 - self.beta2**self.num_updates), self.eps,
        )  # fmt: skip

    def _kept(self, rate: float) -> float:
        """The factor by which a parameter is multiplied before Adam's change is added."""
        return 1.0


@dataclass
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Before Adam's change, p is multiplied by 1 - rate * weight_decay.
    """

    weight_decay: float = 0.01

    RANGES: ClassVar = Adam.RANGES | {"weight_decay": (0.0, math.inf)}

    def _kept(self, rate: float) -> float:
        return 1.0 - rate * self.weight_decay
