"""Compiled programs kept in a file from one run to the next, in Kaldi's format.

Kaldi's (CachingOptimizingCompiler::WriteCache in nnet-optimize.cc): the optimization options, then
pairs of request and program. Behind them, where Kaldi no longer reads, ours has a seal: a digest of
the network structure the programs were compiled for, and one of all that stands before it. Kaldi's
own files lack it; then the checker alone decides whether a program fits.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from typing import TYPE_CHECKING

from nnet3tools.errors import DataError, ProgramError, UserError
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io import log
from nnet3tools.io.files import Kind, classify_input, open_input, open_output
from nnet3tools.io.stream import Writer
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.structure import structure_digest
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.checker import check_computation
from nnet3tools.program.commands import Propagate
from nnet3tools.program.computation import Computation
from nnet3tools.program.files import read_computation, write_computation

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader

__all__ = ["load_cache", "save_cache"]

_SEAL = "<NetworkStructure>"
_CONTENT = "<Content>"
Entry = tuple[ComputationRequest, Computation]

# What garbled numbers that are well-formed can lead the readers and the checker into.
_UNUSABLE = (UserError, ProgramError, LookupError, ValueError, ArithmeticError, TypeError)


def load_cache(rxfilename: str, compiler: CachingOptimizingCompiler) -> bool:
    """Take over the programs of a cache file; whether it was used.

    One that is missing, damaged, or made for another network or other options gets a warning and
    is left alone: its programs will be compiled again.
    """
    if classify_input(rxfilename) is Kind.FILE and not os.path.exists(rxfilename):
        log.warning(
            "Could not open cached computation. Probably this is the first training iteration."
        )
        return False
    began = time.perf_counter()
    try:
        with open_input(rxfilename) as reader:
            entries, vouched = _read(reader, compiler)
    except _UNUSABLE as error:
        log.warning(
            f"Not using the computation cache {rxfilename}, compiling anew: "
            f"{' '.join(str(error).split()) or type(error).__name__}"
        )
        return False
    finally:
        compiler.seconds["I/O"] += time.perf_counter() - began
    for request, computation in entries:
        compiler.insert(request, computation)
    compiler.vouched = compiler.vouched and vouched
    log.log(f"Read computation cache from {rxfilename}")
    if not vouched:
        log.vlog(1, f"{rxfilename} does not say which network it was made for")
    return True


def save_cache(wxfilename: str, compiler: CachingOptimizingCompiler, binary: bool = True) -> None:
    """Write all programs that the compiler has in its cache, least recently used first.

    So that a reader with less room keeps those that were in use last.
    """
    began = time.perf_counter()
    content = _content(compiler.optimize_options, list(compiler.cache.items()), binary)
    with open_output(wxfilename, binary) as writer:
        writer.write_bytes(content)
        if compiler.vouched:
            writer.write_token(_SEAL)
            writer.write_token(structure_digest(compiler.nnet))
            writer.write_token(_CONTENT)
            writer.write_token(hashlib.sha256(content).hexdigest())
            writer.write_newline()
    compiler.seconds["I/O"] += time.perf_counter() - began
    log.log(f"Wrote computation cache to {wxfilename}")


def _read(reader: Reader, compiler: CachingOptimizingCompiler) -> tuple[list[Entry], bool]:
    """The entries, and whether the file was made for this very network."""
    options = OptimizeOptions.read(reader)
    if options != compiler.optimize_options:
        raise DataError("it was made with other optimization options")
    reader.expect_token("<ComputationCacheSize>")
    size = reader.read_int32()
    reader.expect_token("<ComputationCache>")
    entries = [(ComputationRequest.read(reader), read_computation(reader)) for _ in range(size)]
    vouched = _check_seal(reader, options, entries, compiler.nnet)
    for request, computation in entries:
        _check_entry(compiler.nnet, request, computation)
    return entries, vouched


def _check_seal(reader: Reader, options: OptimizeOptions, entries: list[Entry], nnet: Nnet) -> bool:
    """Whether there is a seal; DataError if it is not this network's, or the file was changed."""
    if reader.peek_token() == "":
        return False
    reader.expect_token(_SEAL)
    if reader.read_token() != structure_digest(nnet):
        raise DataError("it was made for a network of another structure")
    reader.expect_token(_CONTENT)
    # Reading and writing are inverse, byte for byte, so the digest of what was read will do.
    content = _content(options, entries, reader.binary)
    if reader.read_token() != hashlib.sha256(content).hexdigest():
        raise DataError("its content was damaged since it was written")
    return True


def _check_entry(nnet: Nnet, request: ComputationRequest, computation: Computation) -> None:
    """ProgramError or RequestError unless the program can be what the request asks of `nnet`."""
    request.validate(nnet)
    check_computation(computation, nnet, request)
    if computation.need_model_derivative != request.need_model_derivative:
        raise ProgramError("a program with and a request without model derivative, or vice versa")
    if not request.store_component_stats and any(
        isinstance(command, Propagate) and command.store_stats for command in computation.commands
    ):
        raise ProgramError("a program that stores statistics for a request that wants none")


def _content(options: OptimizeOptions, entries: list[Entry], binary: bool) -> bytes:
    """Kaldi's part of the file, from the options to the last program."""
    out = io.BytesIO()
    writer = Writer(out, binary)
    options.write(writer)
    writer.write_token("<ComputationCacheSize>")
    writer.write_int32(len(entries))
    writer.write_token("<ComputationCache>")
    for request, computation in entries:
        request.write(writer)
        write_computation(writer, computation)
    return out.getvalue()
