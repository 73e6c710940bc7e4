"""Quantized rows and their products on the CPU outside of recordings: the C kernels at once.

Kernels and references give the same bytes, so results do not depend on which of them runs. The
references take several times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.jobs import run_compiling
from nnet3tools.tensor.cpu.kernels import Job
from nnet3tools.tensor.operators.integer_affine import cpu, integer_affine, quantize_rows
from nnet3tools.tensor.registry import Operator, implements


def _bind(
    operator: Operator, make_jobs: Callable[..., list[Job] | None], *operands: Any, **options: Any
) -> Callable[[], None]:
    """A callable that makes one call of the operator."""
    jobs = make_jobs(*operands, **options) if are_native() else None
    reference = partial(operator.reference, *operands, **options)

    def run() -> None:
        if jobs is None or not run_compiling(jobs[0]):
            reference()

    return run


implements("quantize_rows", "numpy", types=("uint8", "int16"), binder=True)(
    partial(_bind, quantize_rows, cpu.quantize_jobs)
)
implements("integer_affine", "numpy", types=("float32",), binder=True)(
    partial(_bind, integer_affine, cpu.affine_jobs)
)
