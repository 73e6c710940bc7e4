"""Compiled programs kept in a file from one run to the next, in Kaldi's format.

Kaldi's form (CachingOptimizingCompiler::WriteCache) is the optimization options, then pairs of
request and program. After them, where Kaldi no longer reads, this module writes a seal: a digest of
the network structure, the version of this package and the kind of processor, a digest of all bytes
before the seal, and the sizes of requests and programs, so that each program is read only when it
is needed. Kaldi's files have no seal: they are
read whole, and the checker decides whether a program fits.
"""

import hashlib
import io
import os
import sys
import time
from dataclasses import dataclass

from nnet3tools import __version__
from nnet3tools.errors import DataError, ProgramError, UserError
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.io import log
from nnet3tools.io.files import FileKind, classify_input, open_input, open_output
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.structure import structure_digest
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler, Stored
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.checker import check_computation
from nnet3tools.program.commands import Propagate
from nnet3tools.program.computation import Computation
from nnet3tools.program.files import read_computation, write_computation

_SEAL, _CONTENT, _SIZES = "<NetworkStructure>", "<Content>", "<Sizes>"
_MAKERS = {"<Version>": f"nnet3tools-{__version__}", "<Processor>": os.uname().machine}
"""Facts in the seal that must be the same where the file is read: another version may compile
requests differently, and results on processors of other kinds are not the same bit for bit."""

# Errors of readers and checker for files with damaged but well-formed numbers.
_UNUSABLE = (UserError, ProgramError, LookupError, ValueError, ArithmeticError, TypeError)


@dataclass(frozen=True)
class StoredProgram:
    """The bytes of a program from a cache file, decoded only when it is needed.

    `content` are the bytes, in Kaldi's binary or text form, `file` the cache file's name for
    messages.
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
            _check_entry(self.nnet, self.request, computation)
        except _UNUSABLE as error:
            _warn_unused(f"a program of the computation cache {self.file}", error)
            return None
        return computation

    def written(self, binary: bool) -> bytes:
        """The program's bytes in text or binary form; the stored bytes if they have that form."""
        return self.content if binary == self.binary else _bytes_of(self._read(), binary)


Entry = tuple[ComputationRequest, Computation | Stored]


def load_cache(rxfilename: str, compiler: CachingOptimizingCompiler) -> bool:
    """Put the programs of a file into the compiler's cache; returns whether the file was used.

    A file that is missing, damaged, or for another network or options causes a warning and is not
    used, so that its programs are compiled again.
    """
    if classify_input(rxfilename) is FileKind.FILE and not os.path.exists(rxfilename):
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
            writer.write_token(_SEAL)
            writer.write_token(structure_digest(compiler.nnet))
            for token, value in _MAKERS.items():
                writer.write_token(token)
                writer.write_token(value)
            writer.write_token(_CONTENT)
            writer.write_token(hashlib.sha256(content).hexdigest())
            writer.write_token(_SIZES)
            writer.write_token(":".join(str(len(piece)) for piece in pieces))
            writer.write_newline()
    compiler.seconds["I/O"] += time.perf_counter() - began
    log.log(f"Wrote computation cache to {wxfilename}")


def _options_piece(options: OptimizeOptions, size: int, binary: bool) -> bytes:
    """The bytes of a cache file before its first request; `size` is the number of programs."""
    out = io.BytesIO()
    writer = Writer(out, binary)
    options.write(writer)
    writer.write_token("<ComputationCacheSize>")
    writer.write_int32(size)
    writer.write_token("<ComputationCache>")
    return out.getvalue()


def _entry_pieces(
    request: ComputationRequest, program: Computation | Stored, binary: bool
) -> list[bytes]:
    """[bytes of a request, bytes of its program]; a program that is not decoded is copied."""
    out = io.BytesIO()
    request.write(Writer(out, binary))
    if isinstance(program, Computation):
        return [out.getvalue(), _bytes_of(program, binary)]
    return [out.getvalue(), program.written(binary)]


def _bytes_of(program: Computation, binary: bool) -> bytes:
    out = io.BytesIO()
    write_computation(Writer(out, binary), program)
    return out.getvalue()


# -- reading


@dataclass(frozen=True)
class _Seal:
    """The data after the last program, which show whether the cache file fits and is unchanged.

    `content` are all bytes before the seal; `sizes` the bytes of the options, then of request
    and program in turn; empty if unknown.
    """

    content: bytes
    sizes: list[int]


def is_cache(reader: Reader) -> bool:
    """Whether a file, at its beginning, is a computation cache."""
    return reader.peek_token() == "<NnetOptimizeOptions>"


def read_entries(
    name: str, reader: Reader, nnet: Nnet, wanted: OptimizeOptions | None = None
) -> tuple[list[Entry], bool]:
    """The entries of a cache file for `nnet`, and whether it has a seal.

    UserError or ProgramError if it does not fit `nnet`, or was not made with the options `wanted`.
    """
    binary = reader.binary
    data = _rest(reader)
    seal = _read_seal(name, data, nnet)
    source = Reader(io.BytesIO(data if seal is None else seal.content), name, binary)
    options = OptimizeOptions.read(source)
    if wanted is not None and options != wanted:
        raise DataError("it was made with other optimization options")
    source.expect_token("<ComputationCacheSize>")
    size = source.read_int32()
    source.expect_token("<ComputationCache>")
    if seal is not None and seal.sizes:
        return _stored_entries(name, seal, size, binary, nnet), True
    entries: list[Entry] = []
    for _ in range(size):
        request, computation = ComputationRequest.read(source), read_computation(source)
        _check_entry(nnet, request, computation)
        entries.append((request, computation))
    if source.peek_token():
        raise DataError(f"expected the end of the file, found {source.peek_token()!r}")
    return entries, seal is not None


def _rest(reader: Reader) -> bytes:
    """All remaining bytes of a stream."""
    while reader.more():
        pass
    return reader.buffered(sys.maxsize)


def _read_seal(name: str, data: bytes, nnet: Nnet) -> _Seal | None:
    """The seal in `data`, the end of a cache file; None if `data` has no seal.

    DataError if the seal is of another network, version or processor, or the file was changed.
    """
    place = data.rfind(f"{_SEAL} ".encode())
    if place < 0:
        return None
    reader = Reader(io.BytesIO(data[place:]), name)
    reader.expect_token(_SEAL)
    if reader.read_token() != structure_digest(nnet):
        raise DataError("it was made for a network of another structure")
    for token, expected in _MAKERS.items():
        # Seals of version 0.1.0 did not have these tokens at first.
        if reader.peek_token() == token:
            reader.read_token()
            if (found := reader.read_token()) != expected:
                kind = token.strip("<>").lower()
                raise DataError(f"it was made by {kind} {found}, expected {expected}")
    reader.expect_token(_CONTENT)
    content = data[:place]
    if reader.read_token() != hashlib.sha256(content).hexdigest():
        raise DataError("its content was damaged since it was written")
    if not reader.peek_token():
        return _Seal(content, [])
    reader.expect_token(_SIZES)
    sizes = [int(size) for size in reader.read_token().split(":")]
    if min(sizes) < 0 or sum(sizes) != len(content):
        raise DataError("the sizes of its programs were damaged since it was written")
    return _Seal(content, sizes)


def _stored_entries(name: str, seal: _Seal, size: int, binary: bool, nnet: Nnet) -> list[Entry]:
    """The `size` requests in a cache file's sealed data, each with its program's bytes."""
    if len(seal.sizes) != 2 * size + 1:
        raise DataError(f"expected {size} requests and programs, found sizes of {seal.sizes}")
    ends = [sum(seal.sizes[: i + 1]) for i in range(len(seal.sizes))]
    entries: list[Entry] = []
    for i in range(0, 2 * size, 2):
        request_reader = Reader(io.BytesIO(seal.content[ends[i] : ends[i + 1]]), name, binary)
        request = ComputationRequest.read(request_reader)
        request.validate(nnet)
        program = seal.content[ends[i + 1] : ends[i + 2]]
        entries.append((request, StoredProgram(name, nnet, request, program, binary)))
    return entries


def _check_entry(nnet: Nnet, request: ComputationRequest, computation: Computation) -> None:
    """ProgramError or RequestError if a program of `nnet` does not fit its request."""
    request.validate(nnet)
    check_computation(computation, nnet, request)
    if computation.need_model_derivative != request.need_model_derivative:
        raise ProgramError("a program with and a request without model derivative, or vice versa")
    if not request.store_component_stats and any(
        isinstance(command, Propagate) and command.store_stats for command in computation.commands
    ):
        raise ProgramError("a program that stores statistics for a request that wants none")
