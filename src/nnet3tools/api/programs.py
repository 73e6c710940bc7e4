"""Compiling requests to programs, printing programs, and running them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from nnet3tools.api.arrays import Path, float_matrix
from nnet3tools.errors import DataError
from nnet3tools.executor.computer import NnetComputer as _NnetComputer
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.executor.run_computation import ProgramResult, run_computation
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.computation import Computation
from nnet3tools.program.files import load_computation, save_computation
from nnet3tools.program.html_page import html_page
from nnet3tools.program.lifetimes import max_memory_use
from nnet3tools.program.printing import command_texts, program_text
from nnet3tools.program.report import ProgramReport


@dataclass(frozen=True)
class Program:
    """A compiled program of matrix commands with the network that it was compiled for.

    `print(program)` shows it in Kaldi's form.
    """

    computation: Computation = field(repr=False)
    """The tables of matrices and submatrices, and the commands as objects."""
    nnet: Nnet = field(repr=False)

    @classmethod
    def read(cls, path: Path, nnet: Nnet) -> Program:
        """The program in a file that nnet3-compile wrote; DataError if it does not fit `nnet`."""
        return cls(load_computation(os.fspath(path), nnet), nnet)

    def write(self, path: Path, binary: bool = True) -> None:
        """Write the program to a file, which nnet3-compute --computation=... runs."""
        save_computation(os.fspath(path), self.computation, self.nnet, binary)

    def __str__(self) -> str:
        return program_text(self.computation, self.nnet)

    @property
    def commands(self) -> list[str]:
        """The commands of the program, each as text."""
        return command_texts(self.computation, self.nnet)

    @property
    def max_memory_bytes(self) -> int:
        """The peak memory of the program's matrices in bytes."""
        return max_memory_use(self.computation)

    def html(self, title: str = "program") -> str:
        """A web page that shows matrices and commands, as nnet3-computation-info --html."""
        return html_page(ProgramReport(self.computation, self.nnet), title)

    def run(
        self, inputs: Mapping[str, ArrayLike], output_derivs: Mapping[str, ArrayLike] | None = None
    ) -> ProgramResult:
        """Run the program once; matrices are given by node name, with rows in the request's order.

        With derivatives at the outputs the backward part runs, too. The result has `outputs`,
        `input_derivs` and `model_derivative` (a network of gradients, or None). DataError if a
        matrix is missing or does not fit.
        """
        derivs = None if output_derivs is None else _matrices(output_derivs)
        given = _matrices(inputs)
        return run_computation(ComputeOptions(), self.computation, self.nnet, given, derivs)


def compile(
    nnet: Nnet,
    request: ComputationRequest | str | os.PathLike[str],
    optimization: OptimizeOptions | None = None,
) -> Program:
    """The optimized program for a request, as nnet3-compile makes it.

    `request` is an object, Kaldi's text of one, or the path of a file (pathlib.Path).
    `optimization` has the options --optimization.* of nnet3-compile. RequestError if the network
    cannot compute the request.
    """
    if isinstance(request, str):
        request = ComputationRequest.from_text(request)
    elif isinstance(request, os.PathLike):
        request = ComputationRequest.load(os.fspath(request))
    return Program(CachingOptimizingCompiler(nnet, optimization).compile(request), nnet)


class NnetComputer(_NnetComputer):
    """Runs a program repeatedly, in steps: inputs, forward, outputs, derivatives, backward.

    computer.accept_input("input", features)
    computer.run()                                  # forward
    output = computer.get_output("output")
    computer.accept_input("output", derivative)     # if the request has derivatives
    computer.run()                                  # backward
    derivative = computer.get_output("input")
    computer.reset()                                # for the next minibatch

    One thread at a time may use a computer.
    """

    def __init__(self, program: Program, nnet_to_update: Nnet | None = None) -> None:
        """Prepare a run; the model derivative is added to `nnet_to_update`.

        It may be the program's own network. DataError if it is None and a derivative is computed.
        """
        if program.computation.need_model_derivative and nnet_to_update is None:
            raise DataError("the program computes a model derivative: give nnet_to_update for it")
        super().__init__(ComputeOptions(), program.computation, program.nnet, nnet_to_update)

    def accept_input(self, node_name: str, matrix: ArrayLike) -> None:
        """Copy in features, or the derivative at an output, of shape (rows, dim).

        DataError if the program does not wait for this node, or the shape does not fit.
        """
        super().accept_input(node_name, float_matrix(f"'{node_name}'", matrix))

    def get_output(self, node_name: str) -> np.ndarray:
        """A copy of an output, or of the derivative at an input, float32 (rows, dim)."""
        return np.array(super().get_output(node_name))


def _matrices(given: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    return {name: float_matrix(f"'{name}'", value) for name, value in given.items()}
