"""Which products need more than half precision (--gpu-math=fp16 or bf16)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_depth = [0]


@contextmanager
def precise_products() -> Iterator[None]:
    """In the `with` block, matrix products have at least the 10 bits and the exponent of TF32.

    This is for sums of squares and the like, which leave the range of half precision. Where
    products are done in single precision, as on the CPU, it changes nothing.
    """
    _depth[0] += 1
    try:
        yield
    finally:
        _depth[0] -= 1


def are_precise() -> bool:
    """Whether the caller is within a `precise_products` block."""
    return _depth[0] > 0
