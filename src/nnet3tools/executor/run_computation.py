"""Run a compiled program once, on matrices named after nodes (nnet3-compute --computation)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.log import log
from nnet3tools.nnet.arithmetic import scale_nnet, set_as_gradient
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.computation import Computation


@dataclass(frozen=True)
class ProgramResult:
    """The results of one run of a program, as host matrices by node name.

    `input_derivs` is empty without backward part; `model_derivative` is None if not computed.
    """

    outputs: dict[str, np.ndarray]
    input_derivs: dict[str, np.ndarray]
    model_derivative: Nnet | None


def run_computation(
    options: ComputeOptions,
    computation: Computation,
    nnet: Nnet,
    inputs: Mapping[str, np.ndarray],
    output_derivs: Mapping[str, np.ndarray] | None = None,
    *,
    like: Array | None = None,
) -> ProgramResult:
    """Run a program forward on matrices by node name and, with `output_derivs`, backward.

    The model derivative starts from zero and is the plain gradient. DataError if a matrix is
    missing or not expected, or if `output_derivs` are given for a program without backward part.
    """
    gradient = None
    if computation.need_model_derivative:
        gradient = nnet.copy()
        scale_nnet(gradient, 0.0)
        set_as_gradient(gradient)
    computer = NnetComputer(options, computation, nnet, gradient, like=like)
    _accept(computer, inputs, "input")
    computer.run()
    outputs = _collect(computer)
    input_derivs: dict[str, np.ndarray] = {}
    if output_derivs is not None:
        if not computer.expected_inputs():
            raise DataError("the program has no backward part: it takes no output derivatives")
        _accept(computer, output_derivs, "output derivative")
        computer.run()
        input_derivs = _collect(computer)
    if options.profile and (report := computer.time_report()):
        log(f"time of commands:\n{report}")
    return ProgramResult(outputs, input_derivs, gradient if output_derivs is not None else None)


def _accept(computer: NnetComputer, matrices: Mapping[str, np.ndarray], what: str) -> None:
    expected = computer.expected_inputs()
    for name in matrices:
        if name not in expected:
            raise DataError(f"{what} '{name}': the program takes {_listed(expected)}")
    for name in expected:
        if name not in matrices:
            given = _listed(matrices)
            raise DataError(f"the program needs a matrix for node '{name}', {what}s are {given}")
        if not np.isfinite(matrices[name]).all():
            raise DataError(f"{what} '{name}' has a value that is not a finite number")
        computer.accept_input(name, matrices[name])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def _collect(computer: NnetComputer) -> dict[str, np.ndarray]:
    names = computer.available_outputs()
    return {name: tensor.to_host(computer.get_output(name)).copy() for name in names}
