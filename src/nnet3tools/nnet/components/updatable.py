"""Components with trainable parameters: rates, limits, parameters as one vector.

The interface is Kaldi's UpdatableComponent (nnet-component-itf.h).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import Array, BackpropArgs, Component, Indexes, Properties
from nnet3tools.nnet.components.fields import Flag, Float, NotNegative
from nnet3tools.nnet.parts import transposed_product
from nnet3tools.tensor.number import Number, store
from nnet3tools.tensor.registry import device_of

_sum_rows = tensor.aggregate("_1", "sum", axis=0)

LATE_IS_GRADIENT = Flag("<IsGradient>", of="is_gradient", when=lambda c: False)
"""The field `is_gradient` after the parameters, where old files have it: read, never written."""

ORTHONORMAL_CONSTRAINT = Float("<OrthonormalConstraint>", "orthonormal-constraint", 0.0, omit=True)
"""The field of this name, which classes declare at its position in their files."""


class LearningRate(NotNegative):
    """Field for a learning rate, with a copy in the memory of a GPU for operators.

    Recorded operations read the copy. They stay valid if the rate changes, but not if it changes to
    or from 0, because components omit work at rate 0.
    """

    def number(self, owner: Any) -> Number | None:
        """The rate's copy in the memory of a GPU; None if the component `owner` is on the host."""
        return owner.__dict__.get("_learning_rate_number")

    def __set__(self, owner: Any, value: float) -> None:
        number, before = self.number(owner), owner.__dict__.get(self.name)
        if number is None or (value == 0.0) != (before == 0.0):
            super().__set__(owner, value)
        owner.__dict__[self.name] = value
        if number is not None:
            store(number.array, value)

    def map_arrays(self, owner: Any, function: Callable[[Any], Any]) -> None:
        array = function(np.array([getattr(owner, self.name)], np.float64))
        if (device_of(array) == "numpy") != ((number := self.number(owner)) is None):
            number = Number(array) if number is None else None
            owner.__dict__["_learning_rate_number"] = number

    def num_bytes(self, owner: Any) -> int:
        return 0  # negligible beside arrays


class UpdatableComponent(Component):
    """A component with trainable parameters and the options common to all such components.

    If `use_natural_gradient`, updates are preconditioned. `orthonormal_constraint` is the length of
    rows of `input_matrix` that the trainer enforces; 0: none is enforced, < 0: any equal length.
    """

    INFO = (
        Component.INFO + " learning_rate is_gradient l2_regularize learning_rate_factor max_change"
    )
    IMPLIED = Properties.UPDATABLE
    use_natural_gradient: Any = True
    orthonormal_constraint: Any = 0.0
    learning_rate_factor = NotNegative(
        "<LearningRateFactor>", "learning-rate-factor", 1.0, omit=True
    )
    is_gradient = Flag("<IsGradient>", None, False, omit=True, key="is-gradient")
    max_change = NotNegative("<MaxChange>", "max-change", 0.0, omit=True)
    l2_regularize = NotNegative("<L2Regularize>", "l2-regularize", 0.0, omit=True)
    learning_rate = LearningRate("<LearningRate>", "learning-rate", 0.001, optional=True)

    def parameters(self) -> dict[str, Array]:
        """The trainable arrays by name, in the order in which Kaldi vectorizes them.

        They are not copies: writing to them changes the component.
        """
        values = ((f.name, getattr(self, f.name)) for f in self.FIELDS if f.is_parameter)
        return {name: value for name, value in values if value.size}

    # -- training

    def backprop(self, args: BackpropArgs) -> None:
        """Compute the input derivative, if it is wanted, and update `args.to_update`.

        The update comes last, as `args.to_update` may be this component. If backprop works in
        place it comes first, as `args.in_deriv` may be `args.out_deriv`.
        """
        updated = args.to_update
        assert updated is None or isinstance(updated, UpdatableComponent)
        in_place = bool(self.FLAGS & Properties.BACKPROP_IN_PLACE)
        if updated is not None and in_place:
            updated.update(args)
        if args.in_deriv is not None:
            self.backprop_input(args)
        if updated is not None and not in_place:
            updated.update(args)

    def backprop_input(self, args: BackpropArgs) -> None:
        """Compute `args.in_deriv`, which is not None."""
        raise NotImplementedError

    def update(self, args: BackpropArgs) -> None:
        """Update the parameters, or accumulate their gradient, from values and derivatives."""
        raise NotImplementedError

    @property
    def rate(self) -> Any:
        """The learning rate for operators: a float, or on a GPU its copy in memory (a Number)."""
        number = UpdatableComponent.learning_rate.number(self)
        return self.learning_rate if number is None else number

    def add_affine_gradient(
        self, linear: Array, bias: Array | None, parts: Sequence[Array], derivs: Array,
        rate: Any = None,
    ) -> None:  # fmt: skip
        """Add `rate` times the gradient of an affine map to its parameters.

        `derivs` (N, D) are derivatives at the output. `parts` are inputs of N rows each, one for
        each range of columns of `linear`. `bias` (D,) is None if there is none. `rate` None stands
        for the learning rate.
        """
        rate = self.rate if rate is None else rate
        if bias is not None:
            _sum_rows(bias, derivs, alpha=rate, beta=1.0)
        transposed_product(derivs, parts, linear, alpha=rate, beta=1.0)

    def copy_options(self, other: UpdatableComponent) -> None:
        """Take over the options that all updatable components have, such as the learning rate."""
        for field in UpdatableComponent.FIELDS:
            setattr(self, field.name, getattr(other, field.name))

    def set_as_gradient(self) -> None:
        """Prepare the component to accumulate a plain gradient: rate 1, no preconditioning."""
        self.learning_rate, self.is_gradient = 1.0, True

    def set_underlying_learning_rate(self, rate: float) -> None:
        """Set the learning rate to `rate` times the component's own factor, in float32 as Kaldi.

        The rounding matters: a difference in the last digit moves LF-MMI's objective over a pass by
        up to 1 % (benchmarks/README.md).
        """
        with np.errstate(over="ignore"):
            self.learning_rate = float(np.float32(rate) * np.float32(self.learning_rate_factor))

    def freeze_natural_gradient(self, freeze: bool) -> None:
        """Stop (or resume) updates of the natural-gradient statistics, for backstitch."""
        for field in self.FIELDS:
            field.freeze_natural_gradient(self, freeze)

    # -- cost

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations for `rows` rows: a product with each parameter matrix or vector."""
        shapes = [p.shape for p in self.parameters().values()]
        products = sum(2 * rows * shape[0] * shape[1] for shape in shapes if len(shape) == 2)
        return products + sum(rows * self.output_dim for shape in shapes if len(shape) == 1)

    def backprop_flops(self, rows: int, indexes: Indexes, wants_input: bool, updates: bool) -> int:
        """Number of operations of the backward pass, including natural gradient.

        The derivatives of the input (if `wants_input`) and of the parameters (if `updates`) take as
        many operations as the forward pass each.
        """
        total = self.propagate_flops(rows, indexes) * (int(wants_input) + int(updates))
        return total + self.natural_gradient_flops(rows) if updates else total

    def natural_gradient_flops(self, rows: int) -> int:
        """Number of operations to precondition inputs and output derivatives; 0 by default."""
        return 0

    # -- parameters as one vector

    @property
    def num_parameters(self) -> int:
        """Number of elements of all trainable arrays."""
        return sum(int(p.size) for p in self.parameters().values())

    def dot_product(self, other: UpdatableComponent) -> float:
        """Inner product of two components' parameters."""
        mine, theirs = self.parameters(), other.parameters()
        return sum(tensor.dot(mine[name], theirs[name]) for name in mine)

    def vectorize(self) -> np.ndarray:
        """All parameters as one float32 vector on the host."""
        flat = [tensor.to_host(p).ravel() for p in self.parameters().values()]
        return np.concatenate(flat) if flat else np.empty(0, np.float32)

    def unvectorize(self, values: np.ndarray) -> None:
        """Set all parameters from a host vector in the order of `vectorize`."""
        start = 0
        for p in self.parameters().values():
            part = values[start : start + p.size].reshape(p.shape)
            tensor.copy(p, tensor.asarray(part, like=p))
            start += int(p.size)
