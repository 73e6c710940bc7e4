"""The parameter update where norms are on a GPU: what update.py does, without waiting for it.

All limits are worked out by formulas over one vector with an entry for each component; what was
limited is counted there and fetched when it is logged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet

__all__ = ["DeviceUpdate"]

# factor (_1) and squared norm once limited (_2) of squared norms (_3), limits (_4), |scale| (_5)
_limit_each = tensor.element(
    "norm = sqrt(_3) * _5; f = where(_4 != 0 && norm > _4, _4 / norm, 1.0); _1 = f; _2 = f * f * _3"
)
_sum = tensor.aggregate("_1", "sum", axis=0)
# the whole change's factor (_1; 0 where it is not finite) of its squared norm (_2), |scale| (_3),
# scale (_4), limit (_5, 0 for none); _6 counts what was limited, _7 what was not finite
_limit_all = tensor.element(
    "norm = sqrt(_2) * _3; finite = norm < 1e37; over = _5 != 0 && !(norm <= _5); "
    "_1 = where(over, where(finite, _4 * _5 / norm, 0.0), _4); "
    "_6 += where(over && finite, 1.0, 0.0); _7 += where(over && !finite, 1.0, 0.0)"
)
_products = tensor.element("_1 = _2 * _3")
_kept_if = tensor.element("_1 = where(_2 != 0, _1, 0)")
_count = tensor.element("_1 += where(_2 != 1.0, 1.0, 0.0)")


class DeviceUpdate:
    """The vectors of one trainer's updates."""

    def __init__(self, num_components: int, like: Array) -> None:
        """`like` is an array of the device."""
        shape = (num_components + 1,)
        self.squares, self.factors, self.limited, self._counts = (
            tensor.zeros(shape, like=like, dtype=np.float64) for _ in range(4)
        )
        self._whole = tensor.zeros((4,), like=like, dtype=np.float64)
        self._limits: tuple[Any, Array] | None = None

    def run(
        self, delta: Nnet, nnet: Nnet, max_param_change: float, limit_scale: float, scale: float
    ) -> None:
        """Add `scale` times `delta` to `nnet`, each component's and the whole change limited."""
        components = delta.updatable_components()
        for i, (_, component) in enumerate(components):
            norm = component.dot_product(component)
            tensor.copy(self.squares[i : i + 1], getattr(norm, "array", norm))
        limits = self._limits_of([c.max_change * limit_scale for _, c in components])
        _limit_each(self.factors, self.limited, self.squares, limits, abs(scale))
        _count(self._counts, self.factors)
        total, whole = self._whole[:1], self._whole[1:2]
        _sum(total, self.limited[:, None])
        _limit_all(
            whole, total, abs(scale), float(scale), max_param_change * limit_scale,
            self._whole[2:3], self._whole[3:4],
        )  # fmt: skip
        _products(self.factors, self.factors, whole)  # counted above, before this
        updated = {id(c): i for i, (_, c) in enumerate(components)}
        for source, dest in zip(delta.components, nnet.components, strict=True):
            at = updated.get(id(source))
            dest.add(scale if at is None else _scalar(self.factors[at : at + 1]), source)

    @property
    def factor(self) -> Array:
        """(1,): what the last change was multiplied with as a whole; 0 if it was not applied."""
        return self._whole[1:2]

    def drop_if_not_applied(self, delta: Nnet) -> None:
        """Forget the last change for good, as momentum must, if it was not finite."""
        for _, component in delta.updatable_components():
            for array in component.parameters().values():
                _kept_if(array, self.factor)

    def _limits_of(self, limits: list[float]) -> Array:
        """Limits on the device, uploaded when they change."""
        if self._limits is None or self._limits[0] != limits:
            host = np.array([*limits, 0.0], np.float64)
            self._limits = limits, tensor.asarray(host, like=self.squares)
        return self._limits[1]

    def counts(self) -> tuple[list[int], int, int]:
        """How often each component, and the whole change, was limited; and was not finite."""
        each, whole = tensor.to_host(self._counts), tensor.to_host(self._whole)
        return [int(n) for n in each[:-1]], int(whole[2]), int(whole[3])


def _scalar(array: Array) -> Any:
    """A number on the device, as tensor.add takes it."""
    from nnet3tools.tensor.number import Number

    return Number(array)
