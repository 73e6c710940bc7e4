"""nnet3-compile: compile a ComputationRequest, or all requests of training, into programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.io import log
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.options import check_name, listed_names

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.optimizer.pipeline import AfterPass
    from nnet3tools.program.computation import Computation

USAGE = """Compiles a computation request (which rows of which inputs are given, which rows of
which outputs and which derivatives are requested) into a program for a network, which
nnet3-compute --computation=... runs.
With --egs=<egs-rspecifier>, compiles every distinct request that trainers would make for these
(merged) examples, frame-level, chain or discriminative, and writes a computation cache for their
option --read-cache.

Usage:  nnet3-compile [options] <raw-nnet-in> <request-rxfilename> <computation-wxfilename>
 or:    nnet3-compile --explain=<listings> [options] <raw-nnet-in> <request-rxfilename>
 or:    nnet3-compile --passes=<names> [options] <raw-nnet-in> <computation-rxfilename> \\
          <computation-wxfilename>
 or:    nnet3-compile --egs=<egs-rspecifier> [options] <raw-nnet-in> <cache-wxfilename>
e.g.:
 nnet3-compile final.raw request.txt forward.comp
 nnet3-compile --print=true --optimization.optimize=false final.raw request.txt /dev/null
 nnet3-compile --explain=steps,deriv final.raw request.txt
 nnet3-compile --optimization.optimize=false final.raw request.txt plain.comp
 nnet3-compile --passes=convert-addition,merge-variables --print-passes final.raw plain.comp a.comp
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
    print_passes: str = option(
        "",
        "Print what each pass of the optimizer changes, as removed (-) and added (+) lines; with "
        "--print-passes=<names>, only that of these passes, separated by commas.",
        bare="all",
    )
    passes: str = option(
        "",
        "If supplied, names of passes, separated by commas, to apply in this order to a program "
        "from a file; see above.",
    )
    egs: str = option(
        "", "If supplied, an rspecifier of the examples to compile a cache for; see above."
    )
    need_model_derivative: bool = option(
        True, "With --egs: false for programs that only compute outputs."
    )
    store_component_stats: bool = option(
        True, "With --egs: must be as nnet3-train is called with --store-component-stats."
    )
    collapse_model: bool = option(
        False,
        "With --egs: set test modes and collapse the model first, as nnet3-compute-prob does. With "
        "--need-model-derivative=false and --store-component-stats=false, its --read-cache can "
        "then read the cache.",
    )
    xent_regularize: float = option(
        0.0,
        "With --egs of chain or discriminative examples: must be as the trainer is called with "
        "--xent-regularize.",
    )
    optimization: OptimizeOptions = option_group("optimization", OptimizeOptions)
    compiler: CompilerOptions = option_group("compiler", CompilerOptions)


@program("nnet3-compile", USAGE, Options, num_args=(2, 3))
def main(options: Options, args: list[str]) -> None:
    _check_together(options)
    wanted = 2 if options.egs else 3
    if len(args) != wanted and (options.egs or options.passes or not options.explain):
        mode = "with" if options.egs else "without"
        raise OptionError(f"expected {wanted} arguments {mode} --egs, found {len(args)}")
    if options.egs:
        compile_cache(options, *args)
    elif options.passes:
        rewrite_program(options, *args)
    else:
        compile_request(options, *args)


def _check_together(options: Options) -> None:
    """Raise OptionError if an option is given that has no effect with --egs or --passes."""
    modes = {"egs": ("passes", "explain", "print_passes", "print"), "passes": ("explain",)}
    for mode, others in modes.items():
        for other in others:
            if getattr(options, mode) and getattr(options, other):
                raise OptionError(f"--{other.replace('_', '-')} does not go with --{mode}")


def compile_request(
    options: Options, nnet_in: str, request_in: str, computation_out: str | None = None
) -> None:
    """Print the stages of compiling that --explain names; write the program if a file is given."""
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
    out = sys.stderr if computation_out in ("-", "") else sys.stdout
    printer = _pass_printer(options, nnet, out)
    request = ComputationRequest.load(request_in)
    compiler = CachingOptimizingCompiler(
        nnet, options.optimization, options.compiler, after_pass=printer
    )
    with naming(request_in):
        if listings:
            explanation = Explanation(nnet, request, lambda: compiler.compile(request))
            for listing in listings:
                as_json = options.explain_format == "json"
                out.write((explanation.json if as_json else explanation.text)(listing))
        if computation_out is None:
            return
        computation = compiler.compile(request)
    save_computation(computation_out, computation, nnet, options.binary)
    if options.print:
        out.write(program_text(computation, nnet))
    log.log(
        f"Compiled {request_in}: {len(computation.commands)} commands, "
        f"{len(computation.matrices) - 1} matrices, {max_memory_use(computation)} bytes at most; "
        f"{compiler.time_report()}"
    )


def rewrite_program(
    options: Options, nnet_in: str, computation_in: str, computation_out: str
) -> None:
    """Apply the passes that --passes names to the program in a file, and write the result."""
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.optimizer.pass_context import PassContext
    from nnet3tools.optimizer.pipeline import PASSES, apply_passes
    from nnet3tools.program.files import load_computation, save_computation
    from nnet3tools.program.printing import program_text

    names = listed_names("--passes", options.passes, [step.name for step in PASSES])
    nnet = read_nnet(nnet_in)
    out = sys.stderr if computation_out in ("-", "") else sys.stdout
    printer = _pass_printer(options, nnet, out)
    computation = load_computation(computation_in, nnet)
    with naming(computation_in):
        context = PassContext(nnet, options.optimization)
        computation = apply_passes(computation, context, names, printer)
    save_computation(computation_out, computation, nnet, options.binary)
    if options.print:
        out.write(program_text(computation, nnet))


def _pass_printer(options: Options, nnet: Nnet, out: TextIO) -> AfterPass | None:
    """A function that prints what a pass did, as --print-passes says; None without the option."""
    from nnet3tools.optimizer.pipeline import PASSES
    from nnet3tools.program.printing import difference_text, sizes_text

    if not options.print_passes:
        return None
    known = ["all", *(step.name for step in PASSES)]
    wanted = listed_names("--print-passes", options.print_passes, known)

    def print_pass(name: str, before: Computation, after: Computation) -> None:
        if name in wanted or "all" in wanted:
            out.write(f"# {name}: {sizes_text(before, after)}\n")
            out.write(difference_text(before, after, nnet))

    return print_pass


def compile_cache(options: Options, nnet_in: str, cache_out: str) -> None:
    """Compile the requests of the examples of --egs; write the programs as computation cache."""
    from nnet3tools.cli.example_requests import for_each_request
    from nnet3tools.nnet.collapse import prepare_for_test
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.optimizer.cache_files import save_cache
    from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler

    nnet = read_nnet(nnet_in)
    if options.collapse_model:
        prepare_for_test(nnet)
    compiler = CachingOptimizingCompiler(nnet, options.optimization, options.compiler)
    flags = options.need_model_derivative, options.store_component_stats
    count = for_each_request(
        nnet,
        options.egs,
        flags,
        options.xent_regularize,
        lambda key, request: compiler.compile(request),
    )
    if count == 0:
        raise DataError(f"{options.egs}: no examples")
    if compiler.num_compiled > len(compiler.cache):
        log.warning(
            f"{compiler.num_compiled - len(compiler.cache)} programs do not fit in the cache; give "
            "a larger --compiler.cache-capacity, here and to nnet3-train"
        )
    save_cache(cache_out, compiler, options.binary)
    log.log(f"Compiled {compiler.num_compiled} programs for {count} examples")
    compiler.log_time()
