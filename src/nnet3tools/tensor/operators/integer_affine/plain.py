"""The C kernels for calls outside of recordings on a CPU.

Kernels and references give the same bytes, so results do not depend on which of them runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.jobs import run_compiling
from nnet3tools.tensor.cpu.kernels import job_maker
from nnet3tools.tensor.operators.integer_affine import integer_affine, quantize_rows
from nnet3tools.tensor.registry import Operator, implements


def bind_kernel(operator: Operator, *operands: Any, **options: Any) -> Callable[[], None]:
    """A callable that makes one call of the operator, by its C kernel if there is one."""
    make = job_maker(operator) if are_native() else None
    jobs = None if make is None else make(*operands, **options)

    def run() -> None:
        if jobs is None or not run_compiling(jobs[0]):
            operator.reference(*operands, **options)

    return run


for _operator in (quantize_rows, integer_affine):
    implements(_operator.name, "numpy", _operator.types, binder=True)(
        partial(bind_kernel, _operator)
    )
