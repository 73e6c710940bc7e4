"""Maximum over boxes of the columns of each row, seen as a three-dimensional array.

File fields: Kaldi's MaxpoolingComponent (nnet-combined-component.cc).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import (
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.convolution import num_steps, windows
from nnet3tools.nnet.components.registry import register

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["MaxpoolingComponent"]

_larger = tensor.element("_1 = max(_1, _2)")
_route = tensor.element("_1 += where(_2 == _3, _4, 0)")


class _Pool(NamedTuple):
    """Sizes of pooling, in the order of its config keys and file tokens."""

    input_x_dim: int
    input_y_dim: int
    input_z_dim: int
    pool_x_size: int
    pool_y_size: int
    pool_z_size: int
    pool_x_step: int
    pool_y_step: int
    pool_z_step: int

    @property
    def num_pools(self) -> tuple[int, int, int]:
        """Number of pools along x, y, z."""
        x, y, z = (num_steps(self[k], self[k + 3], self[k + 6]) for k in range(3))
        return x, y, z

    def problem(self) -> str | None:
        """What does not fit, or None."""
        if min(self) <= 0:
            return "all dimensions, sizes and steps must be positive"
        for k, axis in enumerate("xyz"):
            size, window, step = self[k], self[k + 3], self[k + 6]
            if not size >= window >= step or (size - window) % step != 0:
                return (
                    f"pools of {axis}-size {window} with step {step} do not cover "
                    f"input-{axis}-dim={size}"
                )
        return None


@register
class MaxpoolingComponent(Component):
    """The maximum over boxes of the input, each row being an array over x, y, z."""

    TOKENS: ClassVar[tuple[str, ...]] = (
        "<InputXDim>",
        "<InputYDim>",
        "<InputZDim>",
        "<PoolXSize>",
        "<PoolYSize>",
        "<PoolZSize>",
        "<PoolXStep>",
        "<PoolYStep>",
        "<PoolZStep>",
    )

    def __init__(self, sizes: _Pool) -> None:
        self.sizes = sizes

    @property
    def input_dim(self) -> int:
        return math.prod(self.sizes[:3])

    @property
    def output_dim(self) -> int:
        return math.prod(self.sizes.num_pools)

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.BACKPROP_NEEDS_OUTPUT
            | Properties.BACKPROP_ADDS
        )

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        sizes = _Pool(*(line.get_int(name.replace("_", "-")) for name in _Pool._fields))
        if problem := sizes.problem():
            raise line.error(problem)
        return cls(sizes)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        sizes = _Pool(*(read_field(reader, token, reader.read_int32) for token in cls.TOKENS))
        require(reader, sizes.problem() is None, sizes.problem() or "")
        reader.expect_token(f"</{cls.type_name}>")
        return cls(sizes)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        for token, size in zip(self.TOKENS, self.sizes, strict=True):
            write_field(writer, token, size)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        sizes = self.sizes._asdict().items()
        return self.type_name + "".join(f", {k.replace('_', '-')}={v}" for k, v in sizes)

    def _places(self, matrix: Array) -> Iterator[Array]:
        """Views (rows, x, y, z pools), one for each place within a pool."""
        images = matrix.reshape(-1, *self.sizes[:3])
        steps, num_pools = self.sizes[6:], self.sizes.num_pools
        for place in np.ndindex(*self.sizes[3:6]):
            places = (
                windows(at, n, step) for at, n, step in zip(place, num_pools, steps, strict=True)
            )
            yield images[(slice(None), *places)]

    def _pools(self, matrix: Array) -> Array:
        """An output (or its derivative) as (rows, x, y, z pools), a view."""
        return matrix.reshape(-1, *self.sizes.num_pools)

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """One for each input."""
        return rows * self.input_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        pools = self._pools(out_value)
        for k, values in enumerate(self._places(in_value)):
            if k == 0:
                tensor.copy(pools, values)
            else:
                _larger(pools, values)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is None:
            return
        largest, derivs = self._pools(args.out_value), self._pools(args.out_deriv)
        places = zip(self._places(args.in_value), self._places(args.in_deriv), strict=True)
        for values, in_derivs in places:
            _route(in_derivs, values, largest, derivs)
