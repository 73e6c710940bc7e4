"""Networks as vectors: scaling, adding, inner products, and settings of all components.

Functions change components in place. Kaldi's counterparts are in nnet-utils.h.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import DataError, DivergedError
from nnet3tools.nnet.components.base import (
    BatchStatisticsComponent,
    Component,
    RandomComponent,
)
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.nnet import Nnet


def _updatable(nnet: Nnet) -> list[UpdatableComponent]:
    return [component for _, component in nnet.updatable_components()]


def check_same_structure(first: Nnet, second: Nnet) -> None:
    """Raise DataError unless two networks' components agree in number, type and size."""
    if len(first.components) != len(second.components):
        raise DataError(
            f"the networks do not match: {len(first.components)} and "
            f"{len(second.components)} components"
        )
    for name, a, b in zip(first.component_names, first.components, second.components, strict=True):
        if _shape(a) != _shape(b):
            raise DataError(
                f"the networks do not match: component '{name}' is "
                f"{_describe(a)} in one and {_describe(b)} in the other"
            )


def _shape(component: Component) -> tuple[object, ...]:
    sizes = (
        tuple(p.shape for p in component.parameters().values())
        if isinstance(component, UpdatableComponent)
        else ()
    )
    return type(component), component.input_dim, component.output_dim, sizes


def _describe(component: Component) -> str:
    return f"{component.type_name} {component.input_dim} -> {component.output_dim}"


# -- vector operations


def scale_nnet(nnet: Nnet, scale: float) -> None:
    """Multiply all parameters and statistics by `scale`."""
    if scale != 1.0:
        for component in nnet.components:
            component.scale(scale)


def add_nnet(nnet: Nnet, source: Nnet, alpha: float = 1.0) -> None:
    """Add alpha times the parameters and statistics of `source`, of equal structure, to `nnet`."""
    check_same_structure(nnet, source)
    for component, other in zip(nnet.components, source.components, strict=True):
        component.add(alpha, other)


def component_dot_products(first: Nnet, second: Nnet) -> NDArray[np.float32]:
    """Inner product of two networks' parameters for each updatable component, in order.

    Sums are in single precision, row by row, as Kaldi's on the CPU, so that logs show its digits.
    """
    pairs = zip(_updatable(first), _updatable(second), strict=True)
    return np.array([_single_precision_dot(a, b) for a, b in pairs], np.float32)


def _single_precision_dot(first: UpdatableComponent, second: UpdatableComponent) -> np.float32:
    others, total = second.parameters(), np.float32(0.0)
    for name, mine in first.parameters().items():
        a, b = (np.atleast_2d(tensor.to_host(array)) for array in (mine, others[name]))
        a, b = (array.reshape(len(array), -1) for array in (a, b))
        rows = np.matmul(a[:, None, :], b[:, :, None]).ravel()
        total = np.float32(total + np.add.accumulate(rows, dtype=np.float32)[-1:].sum())
    return total


def num_parameters(nnet: Nnet) -> int:
    """Number of trainable parameters."""
    return sum(component.num_parameters for component in _updatable(nnet))


def vectorize(nnet: Nnet) -> NDArray[np.float32]:
    """All parameters in Kaldi's order as one vector on the host."""
    parts = [component.vectorize() for component in _updatable(nnet)]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


def unvectorize(nnet: Nnet, values: NDArray[np.float32]) -> None:
    """Set all parameters from a vector that `vectorize` returned."""
    if values.shape != (num_parameters(nnet),):
        raise DataError(f"expected {num_parameters(nnet)} parameters, found {values.shape}")
    start = 0
    for component in _updatable(nnet):
        component.unvectorize(values[start : start + component.num_parameters])
        start += component.num_parameters


def format_per_component(nnet: Nnet, values: Sequence[float] | NDArray[np.floating]) -> str:
    """Format one number per updatable component as Kaldi logs it: `[ name:value name:value ]`."""
    names = [name for name, _ in nnet.updatable_components()]
    return "[ " + "".join(f"{n}:{v:g} " for n, v in zip(names, values, strict=True)) + "]"


# -- settings of all components


def zero_stats(nnet: Nnet) -> None:
    """Set the statistics that components keep about training data to zero."""
    for component in nnet.components:
        component.zero_stats()


def set_as_gradient(nnet: Nnet) -> None:
    """Prepare the network to accumulate a plain gradient (Kaldi's SetNnetAsGradient)."""
    for component in _updatable(nnet):
        component.set_as_gradient()


def freeze_natural_gradient(nnet: Nnet, freeze: bool) -> None:
    """Stop (or resume) updates of the natural-gradient statistics."""
    for component in _updatable(nnet):
        component.freeze_natural_gradient(freeze)


def check_natural_gradient(nnet: Nnet) -> None:
    """Raise DivergedError, naming the component, if natural gradient has met NaN or infinity."""
    for name, component in nnet.updatable_components():
        for preconditioner, _ in component.preconditioners():
            try:
                preconditioner.check_finite()
            except DivergedError as error:
                raise DivergedError(f"component '{name}': {error}") from None


def set_batchnorm_test_mode(nnet: Nnet, test_mode: bool) -> None:
    """Make batch norm use stored statistics (`test_mode` true) or each minibatch's (false)."""
    for component in nnet.components:
        if isinstance(component, BatchStatisticsComponent):
            component.set_test_mode(test_mode)


def scale_batchnorm_stats(nnet: Nnet, scale: float) -> None:
    """Multiply only the statistics of batch norm by `scale`."""
    if scale != 1.0:
        for component in nnet.components:
            if isinstance(component, BatchStatisticsComponent):
                component.scale(scale)


def set_test_modes(nnet: Nnet, batchnorm: bool = True, dropout: bool = True) -> None:
    """Switch batch norm or dropout to test mode, if requested; otherwise leave it unchanged."""
    if batchnorm:
        set_batchnorm_test_mode(nnet, True)
    for component in nnet.components:
        if dropout and isinstance(component, RandomComponent):
            component.test_mode = True
