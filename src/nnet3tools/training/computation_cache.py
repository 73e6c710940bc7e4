"""The cache of compiled programs that nnet3-train keeps from one run to the next.

File format: CachingOptimizingCompiler::WriteCache (nnet-optimize.cc): the optimization options,
then pairs of request and program. Kaldi reads ours and we read Kaldi's.
"""

from __future__ import annotations

import os

from nnet3tools.errors import DataError, ProgramError
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io import log
from nnet3tools.io.files import Kind, classify_input, open_input, open_output
from nnet3tools.io.stream import Reader
from nnet3tools.optimizer.compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.checker import check_computation
from nnet3tools.program.files import read_computation, write_computation

__all__ = ["load_cache", "save_cache"]


def load_cache(rxfilename: str, compiler: CachingOptimizingCompiler) -> None:
    """Take over the programs of a cache file.

    A file that is not there gets a warning (the first of several iterations has none), one made
    with other optimization options is ignored. DataError if the file is garbled or made for
    another network.
    """
    if classify_input(rxfilename) is Kind.FILE and not os.path.exists(rxfilename):
        log.warning(
            "Could not open cached computation. Probably this is the first training iteration."
        )
        return
    with open_input(rxfilename) as reader:
        if OptimizeOptions.read(reader) != compiler.optimize_options:
            log.vlog(1, f"{rxfilename} was made with other optimization options: not used")
            return
        _read_programs(reader, compiler)
    log.log(f"Read computation cache from {rxfilename}")


def _read_programs(reader: Reader, compiler: CachingOptimizingCompiler) -> None:
    reader.expect_token("<ComputationCacheSize>")
    size = reader.read_int32()
    reader.expect_token("<ComputationCache>")
    for _ in range(size):
        request = ComputationRequest.read(reader)
        computation = read_computation(reader)
        try:
            check_computation(computation, compiler.nnet, request)
        except (ProgramError, IndexError) as error:
            raise DataError(
                f"{reader.name}: a cached computation does not fit the network ({error}); "
                "remove the cache if the network has changed"
            ) from None
        compiler.insert(request, computation)


def save_cache(wxfilename: str, compiler: CachingOptimizingCompiler, binary: bool = True) -> None:
    """Write all programs that the compiler has in its cache."""
    with open_output(wxfilename, binary) as writer:
        compiler.optimize_options.write(writer)
        writer.write_token("<ComputationCacheSize>")
        writer.write_int32(len(compiler.cache))
        writer.write_token("<ComputationCache>")
        for request, computation in compiler.cache.items():
            request.write(writer)
            write_computation(writer, computation)
    log.log(f"Wrote computation cache to {wxfilename}")
