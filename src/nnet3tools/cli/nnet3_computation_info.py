"""nnet3-computation-info: report commands, memory and operations of a program."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import DataError, OptionError, ProgramError, naming
from nnet3tools.io import log
from nnet3tools.optimizer.options import OptimizeOptions

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.program.computation import Computation
    from nnet3tools.program.report import ProgramReport

_MOST_CINDEXES = 20000
"""The largest graph that the page shows; a browser needs about a second for it."""

USAGE = """Prints what a compiled program (from nnet3-compile) consists of: the commands in readable
form, commands by kind with their floating-point operations, and the memory over the program's
life: the peak, where it is and which matrices hold it, the arena that the executor will take, and
all that it will take of a GPU's memory: model, its change, natural gradient, minibatches as well.
--html writes a page that shows all that as a picture; it opens in a browser, without a network.

For a computation cache (from nnet3-compile --egs, or --write-cache of other programs) it lists the
programs; --program=N reports one of them.

Usage:  nnet3-computation-info [options] <raw-nnet> <computation-rxfilename|cache-rxfilename>
e.g.:
 nnet3-computation-info final.raw backward.comp
 nnet3-computation-info --print=false --html=backward.html final.raw backward.comp
 nnet3-computation-info --html=a.html --request=backward.request final.raw backward.comp
 nnet3-computation-info --dot='|dot -Tsvg >backward.svg' final.raw backward.comp
See also: nnet3-compile, nnet3-compute
"""


class Options(OptionGroup):
    print: bool = option(True, "If true, print the program itself, command by command.")
    max_matrices: int = option(
        20, "Of the matrices that are alive where most memory is in use, print at most so many."
    )
    program: int = option(
        0, "For a computation cache: the number of the program to report, from 1; 0: list all."
    )
    html: str = option("", "If supplied, a wxfilename for the program as a web page.")
    request: str = option(
        "",
        "With --html: rxfilename of the program's request. The page then has the graph of its "
        "cindexes, and a slider over the programs after the passes of the optimizer.",
    )
    optimization: OptimizeOptions = option_group("optimization", OptimizeOptions)
    dot: str = option("", "If supplied, a wxfilename for the program as a graph for Graphviz.")
    network_dot: str = option("", "If supplied, a wxfilename for the network as such a graph.")


@program("nnet3-computation-info", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.executor.memory_need import memory_need
    from nnet3tools.executor.memory_plan import plan_memory
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.program.analysis import Analysis
    from nnet3tools.program.printing import program_text
    from nnet3tools.program.report import ProgramReport

    if options.request and not options.html:
        raise OptionError("--request needs --html")
    if options.max_matrices < 0:
        raise OptionError(f"--max-matrices={options.max_matrices}: expected at least 0")
    nnet_in, computation_in = args
    nnet = read_nnet(nnet_in)
    if (computation := _program_of_file(options, nnet, computation_in)) is None:
        return
    analysis = Analysis(computation, nnet)
    plan = plan_memory(computation, analysis.matrix_accesses)
    # Lossy compression is applied on a GPU only.
    gpu_plan = plan_memory(computation, analysis.matrix_accesses, compress_lossy=True)
    arenas = {"cpu": plan.num_bytes, "gpu": gpu_plan.num_bytes}
    report = ProgramReport(computation, nnet)
    if options.print:
        sys.stdout.write(program_text(computation, nnet) + "\n")
    need = memory_need(computation, nnet, gpu_plan)
    sys.stdout.write(report.text(arenas, options.max_matrices, need))
    places = [
        [block.matrix, block.first, block.last, offset, block.num_bytes]
        for block, offset in zip(plan.blocks, plan.offsets, strict=True)
        if block.num_bytes
    ]
    title = f"{os.path.basename(computation_in)} for {os.path.basename(nnet_in)}"
    _write_pictures(options, report, title, places, plan.num_bytes)


def _program_of_file(options: Options, nnet: Nnet, computation_in: str) -> Computation | None:
    """The program in a file; of a cache, number --program or, if that is 0, None after a list."""
    from nnet3tools.io.files import open_input
    from nnet3tools.optimizer.cache_files import read_entries
    from nnet3tools.program.computation import Computation
    from nnet3tools.program.files import read_program_file
    from nnet3tools.program.lifetimes import max_memory_use

    with open_input(computation_in) as reader:
        if reader.peek_token() != "<NnetOptimizeOptions>":
            if options.program:
                raise OptionError(f"--program: {computation_in} is one program, not a cache")
            return read_program_file(computation_in, reader, nnet)
        try:
            with naming(computation_in):
                entries, _ = read_entries(computation_in, reader, nnet)
        except ProgramError as error:
            raise DataError(f"{computation_in}: does not fit the network: {error}") from None
    if not 0 <= options.program <= len(entries):
        raise OptionError(f"--program={options.program}: {computation_in} has {len(entries)}")
    for number, (request, stored) in enumerate(entries, start=1):
        if options.program not in (0, number):
            continue
        computation = stored if isinstance(stored, Computation) else stored.load()
        if computation is None:
            raise DataError(f"{computation_in}: program {number} does not fit its request")
        if options.program:
            return computation
        sys.stdout.write(
            f"program {number}: {request.summary()}: {len(computation.commands)} commands, "
            f"{len(computation.matrices) - 1} matrices, {max_memory_use(computation)} bytes\n"
        )
    return None


def _write_pictures(
    options: Options, report: ProgramReport, title: str, places: list[list[int]], arena_bytes: int
) -> None:
    from nnet3tools.program.dot import network_dot, program_dot
    from nnet3tools.program.html_page import html_page

    if options.html:
        views = _request_views(options, report) if options.request else None
        _write(options.html, html_page(report, title, places, arena_bytes, views))
    if options.dot:
        _write(options.dot, program_dot(report.computation, report.nnet))
    if options.network_dot:
        _write(options.network_dot, network_dot(report.nnet))


def _request_views(options: Options, report: ProgramReport) -> dict[str, Any]:
    """Data for the HTML page: the graph of --request, and the program before and after each pass.

    DataError if the program of `report` is not one for this request.
    """
    from nnet3tools.compiler.explaining import Explanation
    from nnet3tools.compiler.options import CompilerOptions
    from nnet3tools.graph.request import ComputationRequest
    from nnet3tools.optimizer.cache_files import check_entry
    from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
    from nnet3tools.program.html_page import page_data
    from nnet3tools.program.report import ProgramReport

    nnet = report.nnet
    programs: list[tuple[str, Computation]] = []

    def keep(name: str, before: Computation, after: Computation) -> None:
        programs.append((f"after {name}", after))
        if len(programs) == 1:
            programs.insert(0, ("before the passes", before))

    request = ComputationRequest.load(options.request)
    in_full = CompilerOptions(use_shortcut=False)
    compiler = CachingOptimizingCompiler(nnet, options.optimization, in_full, after_pass=keep)
    with naming(options.request):
        try:
            check_entry(nnet, request, report.computation)
        except ProgramError as error:
            raise DataError(f"it is not the request of the program: {error}") from None
        compiler.compile(request)
        explanation = Explanation(nnet, request, lambda: compiler.compile(request))
        size = explanation.planned.graph.num_cindexes
    views: dict[str, Any] = {
        "programs": [page_data(ProgramReport(program, nnet), name) for name, program in programs]
    }
    if size > _MOST_CINDEXES:
        log.warning(f"{options.request}: {size} cindexes are too many to be shown as a graph")
    else:
        listings = {name: explanation.data(name) for name in ("computable", "graph", "steps")}
        views["graph"] = {"nodes": nnet.node_names, **listings}
    return views


def _write(wxfilename: str, text: str) -> None:
    from nnet3tools.io.files import open_output

    with open_output(wxfilename, binary=False, header=False) as writer:
        writer.write_text(text)
    log.log(f"Wrote {wxfilename}")
