"""Compiled programs kept in a file from one run to the next, in Kaldi's format.

Kaldi's form (CachingOptimizingCompiler::WriteCache) is the optimization options, then pairs of
request and program. The seal after them (program/seal.py) has the sizes of requests and programs,
so that each program is read only when it is needed. Kaldi's files have no seal: they are
read whole, and the checker decides whether a program fits.
"""

import io
import sys
import time
from collections.abc import Sequence

from nnet3tools.errors import DataError, ProgramError, UserError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io import log
from nnet3tools.io.checked import exists
from nnet3tools.io.files import FileKind, classify_input, open_input, open_output
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler, Stored
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.checker import check_computation
from nnet3tools.program.commands import Propagate
from nnet3tools.program.computation import Computation
from nnet3tools.program.files import encoded_computation, read_computation
from nnet3tools.program.seal import NETWORK, read_seal, write_seal

# Errors of readers and checker for files with damaged but well-formed numbers.
_UNUSABLE = (UserError, ProgramError, LookupError, ValueError, ArithmeticError, TypeError)


@dataclass(frozen=True)
class StoredProgram:
    """The bytes of a program from a cache file, decoded only when it is needed.

    `content` are the bytes, in Kaldi's binary or text form; messages name the cache file, `file`.
    """

    file: str
    nnet: Nnet
    request: ComputationRequest
    content: bytes
    binary: bool

    def _read(self) -> Computation:
        return read_computation(Reader(io.BytesIO(self.content), self.file, self.binary))

    def load(self) -> Computation | None:
        """The decoded program; None, with a warning, if it does not fit its request."""
        try:
            computation = self._read()
            check_entry(self.nnet, self.request, computation)
        except _UNUSABLE as error:
            _warn_unused(f"a program of the computation cache {self.file}", error)
            return None
        return computation

    def written(self, binary: bool) -> bytes:
        """The program's bytes in text or binary form; the stored bytes if they have that form."""
        return self.content if binary == self.binary else encoded_computation(self._read(), binary)


Entry = tuple[ComputationRequest, Computation | Stored]


def load_cache(rxfilename: str, compiler: CachingOptimizingCompiler) -> bool:
    """Put the programs of a file into the compiler's cache; returns whether the file was used.

    A file that is missing, damaged, or for another network or options causes a warning and is not
    used, so that its programs are compiled again.
    """
    if classify_input(rxfilename) is FileKind.FILE and not exists(rxfilename):
        log.warning(
            "Could not open cached computation. Probably this is the first training iteration."
        )
        return False
    began = time.perf_counter()
    try:
        with open_input(rxfilename) as reader:
            entries, vouched = read_entries(
                rxfilename, reader, compiler.nnet, compiler.optimize_options
            )
    except _UNUSABLE as error:
        _warn_unused(f"the computation cache {rxfilename}", error)
        return False
    finally:
        compiler.seconds["I/O"] += time.perf_counter() - began
    for request, program in entries:
        compiler.insert(request, program)
    compiler.vouched = compiler.vouched and vouched
    log.log(f"Read computation cache from {rxfilename}")
    if not vouched:
        log.vlog(1, f"{rxfilename} does not say which network it was made for")
    return True


def _warn_unused(what: str, error: Exception) -> None:
    why = " ".join(str(error).split()) or type(error).__name__
    log.warning(f"Not using {what}, compiling anew: {why}")


def save_cache(wxfilename: str, compiler: CachingOptimizingCompiler, binary: bool = True) -> None:
    """Write all programs in the compiler's cache to a file, least recently used first."""
    began = time.perf_counter()
    pieces = [_options_piece(compiler.optimize_options, len(compiler.cache), binary)]
    for request, program in compiler.cache.items():
        pieces += _entry_pieces(request, program, binary)
    content = b"".join(pieces)
    with open_output(wxfilename, binary) as writer:
        writer.write_bytes(content)
        if compiler.vouched:
            write_seal(writer, compiler.nnet, content, [len(piece) for piece in pieces])
    compiler.seconds["I/O"] += time.perf_counter() - began
    log.log(f"Wrote computation cache to {wxfilename}")


def _options_piece(options: OptimizeOptions, size: int, binary: bool) -> bytes:
    """The bytes of a cache file before its first request; `size` is the number of programs."""
    out = io.BytesIO()
    writer = Writer(out, binary)
    options.write(writer)
    writer.write_token("<ComputationCacheSize>").write_int32(size)
    writer.write_token("<ComputationCache>")
    return out.getvalue()


def _entry_pieces(
    request: ComputationRequest, program: Computation | Stored, binary: bool
) -> list[bytes]:
    """[bytes of a request, bytes of its program]; a program that is not decoded is copied."""
    out = io.BytesIO()
    request.write(Writer(out, binary))
    if isinstance(program, Computation):
        return [out.getvalue(), encoded_computation(program, binary)]
    return [out.getvalue(), program.written(binary)]


# -- reading


def read_entries(
    name: str, reader: Reader, nnet: Nnet, wanted: OptimizeOptions | None = None
) -> tuple[list[Entry], bool]:
    """The (request, program) entries of a cache file, and whether a seal (its maker) follows them.

    UserError or ProgramError if it does not fit `nnet`, or was not made with the options `wanted`.
    """
    binary = reader.binary
    while reader.more():
        pass
    data = reader.buffered(sys.maxsize)
    place = data.rfind(f"{NETWORK} ".encode())
    content, seal = data, None
    if place >= 0:
        content = data[:place]
        seal = read_seal(Reader(io.BytesIO(data[place:]), name), nnet, content)
        if seal.foreign:
            raise DataError(seal.foreign)
    source = Reader(io.BytesIO(content), name, binary)
    options = OptimizeOptions.read(source)
    if wanted is not None and options != wanted:
        raise DataError("it was made with other optimization options")
    source.expect_token("<ComputationCacheSize>")
    size = source.read_int32()
    source.expect_token("<ComputationCache>")
    if seal is not None and seal.sizes:
        return _stored_entries(name, content, seal.sizes, size, binary, nnet), True
    entries: list[Entry] = []
    for _ in range(size):
        request, computation = ComputationRequest.read(source), read_computation(source)
        check_entry(nnet, request, computation)
        entries.append((request, computation))
    if source.peek_token():
        raise DataError(f"expected the end of the file, found {source.peek_token()!r}")
    return entries, seal is not None


def _stored_entries(
    name: str, content: bytes, sizes: Sequence[int], size: int, binary: bool, nnet: Nnet
) -> list[Entry]:
    """(request, StoredProgram) for each of the `size` requests in a cache file's `content`.

    `sizes`: bytes of options, request 1, program 1, request 2, ... `name` is for error messages.
    """
    if len(sizes) != 2 * size + 1:
        raise DataError(f"expected {size} requests and programs, found sizes of {sizes}")
    pieces: list[bytes] = []
    at = 0
    for num_bytes in sizes:
        pieces.append(content[at : at + num_bytes])
        at += num_bytes
    entries: list[Entry] = []
    for asked, program in zip(pieces[1::2], pieces[2::2], strict=True):
        request = ComputationRequest.read(Reader(io.BytesIO(asked), name, binary))
        request.validate(nnet)
        entries.append((request, StoredProgram(name, nnet, request, program, binary)))
    return entries


def check_entry(nnet: Nnet, request: ComputationRequest, computation: Computation) -> None:
    """Raise ProgramError or RequestError if a program of `nnet` does not fit its request."""
    request.validate(nnet)
    check_computation(computation, nnet, request)
    if computation.need_model_derivative != request.need_model_derivative:
        raise ProgramError("a program with and a request without model derivative, or vice versa")
    if not request.store_component_stats and any(
        isinstance(command, Propagate) and command.store_stats for command in computation.commands
    ):
        raise ProgramError("a program that stores statistics for a request that wants none")
