"""nnet3-compile: compile a ComputationRequest, or all requests of training, into programs."""

import sys

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.io import log
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.options import check_name, listed_names

USAGE = """Compiles a computation request (which rows of which inputs are given, which rows of
which outputs and which derivatives are requested) into a program for a network, which
nnet3-compute --computation=... runs.
With --egs=<egs-rspecifier>, compiles every distinct request that nnet3-train would make for these
(merged) examples, and writes a computation cache for its option --read-cache.

Usage:  nnet3-compile [options] <raw-nnet-in> <request-rxfilename> <computation-wxfilename>
 or:    nnet3-compile --explain=<listings> [options] <raw-nnet-in> <request-rxfilename>
 or:    nnet3-compile --egs=<egs-rspecifier> [options] <raw-nnet-in> <cache-wxfilename>
e.g.:
 nnet3-compile final.raw request.txt forward.comp
 nnet3-compile --print=true --optimization.optimize=false final.raw request.txt /dev/null
 nnet3-compile --explain=steps,deriv final.raw request.txt
 nnet3-compile --egs='ark:nnet3-merge-egs ark:1.egs ark:-|' 0.raw 0.cache
 nnet3-train --read-cache=0.cache 0.raw 'ark:nnet3-merge-egs ark:1.egs ark:-|' 1.raw
See also: nnet3-compute, nnet3-computation-info
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    print: bool = option(
        False,
        "If true, print the program in readable form to the standard output (to the standard "
        "error if the program itself goes to the standard output).",
    )
    explain: str = option(
        "",
        "Print what compiling the request finds out, as one or more of graph, computable, epochs, "
        "phases, steps, deriv, variables, accesses, separated by commas; <computation-wxfilename> "
        "may then be left out. Variables and accesses are those of the optimized program.",
    )
    explain_format: str = option(
        "text", "Form of what --explain prints: text, or json (one line for each listing)."
    )
    egs: str = option(
        "", "If supplied, an rspecifier of the examples to compile a cache for; see above."
    )
    need_model_derivative: bool = option(
        True, "With --egs: false for programs that only compute outputs (nnet3-compute-prob)."
    )
    store_component_stats: bool = option(
        True, "With --egs: must be as nnet3-train is called with --store-component-stats."
    )
    optimization: OptimizeOptions = option_group("optimization", OptimizeOptions)
    compiler: CompilerOptions = option_group("compiler", CompilerOptions)


@program("nnet3-compile", USAGE, Options, num_args=(2, 3))
def main(options: Options, args: list[str]) -> None:
    wanted = 2 if options.egs else 3
    if len(args) != wanted and (options.egs or not options.explain):
        mode = "with" if options.egs else "without"
        raise OptionError(f"expected {wanted} arguments {mode} --egs, found {len(args)}")
    compile_cache(options, *args) if options.egs else compile_request(options, *args)


def compile_request(
    options: Options, nnet_in: str, request_in: str, computation_out: str | None = None
) -> None:
    """Explain a request as the options say; unless `computation_out` is None, write its program."""
    from nnet3tools.compiler.explaining import LISTINGS, Explanation
    from nnet3tools.graph.request import ComputationRequest
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
    from nnet3tools.program.files import save_computation
    from nnet3tools.program.lifetimes import max_memory_use
    from nnet3tools.program.printing import program_text

    listings = listed_names("--explain", options.explain, LISTINGS) if options.explain else []
    check_name("--explain-format", options.explain_format, ("text", "json"))
    nnet = read_nnet(nnet_in)
    request = ComputationRequest.load(request_in)
    compiler = CachingOptimizingCompiler(nnet, options.optimization, options.compiler)
    out = sys.stderr if computation_out in ("-", "") else sys.stdout
    with naming(request_in):
        if listings:
            explanation = Explanation(nnet, request, lambda: compiler.compile(request))
            for listing in listings:
                as_json = options.explain_format == "json"
                out.write((explanation.json if as_json else explanation.text)(listing))
        if computation_out is None:
            return
        computation = compiler.compile(request)
    save_computation(computation_out, computation, options.binary)
    if options.print:
        out.write(program_text(computation, nnet))
    log.log(
        f"Compiled {request_in}: {len(computation.commands)} commands, "
        f"{len(computation.matrices) - 1} matrices, {max_memory_use(computation)} bytes at most; "
        f"{compiler.time_report()}"
    )


def compile_cache(options: Options, nnet_in: str, cache_out: str) -> None:
    """Compile the requests of all examples of a table, and write a computation cache."""
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.optimizer.cache_files import save_cache
    from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
    from nnet3tools.training.example import NnetExample, for_each_example
    from nnet3tools.training.running import computation_request

    nnet = read_nnet(nnet_in)
    compiler = CachingOptimizingCompiler(nnet, options.optimization, options.compiler)
    flags = options.need_model_derivative, options.store_component_stats

    def compile_for(key: str, example: NnetExample) -> None:
        compiler.compile(computation_request(nnet, example, *flags))

    if (count := for_each_example(options.egs, compile_for)) == 0:
        raise DataError(f"{options.egs}: no examples")
    if compiler.num_compiled > len(compiler.cache):
        log.warning(
            f"{compiler.num_compiled - len(compiler.cache)} programs do not fit in the cache; give "
            "a larger --compiler.cache-capacity, here and to nnet3-train"
        )
    save_cache(cache_out, compiler, options.binary)
    log.log(f"Compiled {compiler.num_compiled} programs for {count} examples")
    compiler.log_time()
