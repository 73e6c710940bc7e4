"""The C kernels for calls outside of recordings on a CPU.

Kernels and references give the same bytes, so results do not depend on which of them runs.
"""

from __future__ import annotations

from functools import partial

from nnet3tools.tensor.cpu.jobs import bind_kernel
from nnet3tools.tensor.operators.integer_affine import integer_affine, quantize_rows
from nnet3tools.tensor.registry import implements

for _operator in (quantize_rows, integer_affine):
    implements(_operator.name, "numpy", _operator.types, binder=True)(
        partial(bind_kernel, _operator)
    )
