"""An estimate of the GPU memory that a program needs, before it runs."""

from __future__ import annotations

from nnet3tools.executor.memory_plan import MemoryPlan
from nnet3tools.nnet.components.base import Component
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.commands import AcceptInput, Backprop
from nnet3tools.program.computation import Computation

_FLOAT = 4
_NUM_BUFFERS = 2
"""Minibatches on the device at one time: this one and the next (training/device_inputs.py)."""
_SPARSE_TARGET = 12
"""Bytes of a frame's sparse target: row, column and value."""
_WORKSPACE = 32 << 20
"""Bytes of cuBLAS's workspace (tensor/cuda/cublas.py)."""


def memory_need(computation: Computation, nnet: Nnet, plan: MemoryPlan) -> dict[str, int]:
    """The bytes of GPU memory that a program needs, by purpose, the largest first.

    The size of natural gradient follows from its ranks; for targets, one class per row is assumed.
    The few hundred megabytes of CUDA's code and context are not included.
    """
    training = computation.need_model_derivative
    parameters = sum(c.num_bytes() for c in nnet.components)
    tables = (computation.indexes, computation.indexes_multi, computation.indexes_ranges)
    need = {
        "arena of the matrices": plan.num_bytes,
        "model": parameters,
        "example buffers": _NUM_BUFFERS * _example_bytes(computation, nnet),
        "indexes": sum(int(array.nbytes) for table in tables for array in table),
        "cuBLAS workspace": _WORKSPACE,
    }
    if training:
        need["parameter change"] = parameters
        need["natural gradient"] = sum(map(_natural_gradient_bytes, nnet.components))
        need["work space of updates"] = _update_bytes(computation, nnet)
    return dict(sorted(need.items(), key=lambda item: -item[1]))


def need_text(need: dict[str, int]) -> str:
    """The text for `need`, bytes by purpose: total megabytes, then megabytes for each purpose."""
    parts = ", ".join(f"{what} {size / 2**20:.1f}" for what, size in need.items() if size)
    return f"{sum(need.values()) / 2**20:.1f} MB ({parts})"


def _natural_gradient_bytes(component: Component) -> int:
    return sum(
        max(min(estimate.rank, dim - 1), 0) * dim * _FLOAT
        for estimate, dim in component.preconditioners()
    )


def _example_bytes(computation: Computation, nnet: Nnet) -> int:
    total = 0
    for command in computation.commands:
        if isinstance(command, AcceptInput):
            info = computation.submatrices[command.submatrix]
            is_target = nnet.is_output(command.node)
            total += info.num_rows * (_SPARSE_TARGET if is_target else info.num_cols * _FLOAT)
    return total


def _update_bytes(computation: Computation, nnet: Nnet) -> int:
    """Bytes of natural gradient's copies of input and derivative, for the largest component."""
    most = 0
    for command in computation.commands:
        if type(command) is not Backprop:
            continue
        component = nnet.component(command.component)
        rows = computation.submatrices[command.out_deriv].num_rows
        dims = [dim for _, dim in component.preconditioners()]
        most = max(most, sum(1 << (rows * dim * _FLOAT - 1).bit_length() for dim in dims))
    return most
