"""nnet3-compile: compile one ComputationRequest into a program of matrix commands."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from nnet3tools.cli.options import option, option_group, program
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.io import log
from nnet3tools.optimizer.options import OptimizeOptions

USAGE = """Compiles a computation request (which rows of which inputs are given, which rows of
which outputs and which derivatives are wanted) into a program for a network, which
nnet3-compute --computation=... runs.

Usage:  nnet3-compile [options] <raw-nnet-in> <request-rxfilename> <computation-wxfilename>
e.g.:
 nnet3-compile final.raw request.txt forward.comp
 nnet3-compile --print=true --optimization.optimize=false final.raw request.txt /dev/null
See also: nnet3-compute
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-compile."""

    binary: bool = option(True, "Write output in binary mode")
    print: bool = option(
        False,
        "If true, print the program in readable form to the standard output (to the standard "
        "error if the program itself goes to the standard output).",
    )
    optimization: OptimizeOptions = option_group("optimization", OptimizeOptions)
    compiler: CompilerOptions = option_group("compiler", CompilerOptions)


@program("nnet3-compile", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    """Compile and write."""
    from nnet3tools.graph.request import ComputationRequest
    from nnet3tools.io.files import open_input
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.optimizer.compiler import CachingOptimizingCompiler
    from nnet3tools.program.files import save_computation
    from nnet3tools.program.memory import max_memory_use
    from nnet3tools.program.printing import program_text

    nnet_in, request_in, computation_out = args
    nnet = read_nnet(nnet_in)
    with open_input(request_in) as reader:
        request = ComputationRequest.read(reader)
    compiler = CachingOptimizingCompiler(nnet, options.optimization, options.compiler)
    computation = compiler.compile(request)
    save_computation(computation_out, computation, options.binary)
    if options.print:
        out = sys.stderr if computation_out in ("-", "") else sys.stdout
        out.write(program_text(computation, nnet))
    log.log(
        f"Compiled {request_in}: {len(computation.commands)} commands, "
        f"{len(computation.matrices) - 1} matrices, {max_memory_use(computation)} bytes at most; "
        f"{compiler.time_report()}"
    )
