"""Compiled programs that are kept in the user's cache folder for later processes.

Jobs of a recipe compile the same requests for networks of one structure hundreds of times. Reading
and expanding a program takes a fifth of the time of compiling it. The folder is `programs` beside
that of the compiled kernels, with the same checks of who can write it (tensor/cpu/cache.py). Files
are pickles: Kaldi's form takes as long to read as compiling does.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from nnet3tools import __version__, tensor
from nnet3tools.digests import sha256
from nnet3tools.draws import GlibcRand
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.spot_checks import draw_checks, draw_graph_checks
from nnet3tools.io import log
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.computation import Computation
from nnet3tools.program.seal import structure_digest
from nnet3tools.tensor.cpu.cache import cache_folder, open_kept, publish

if TYPE_CHECKING:
    from nnet3tools.compiler.compiler import AfterExploring
    from nnet3tools.graph.builder import GraphBuilder

    CompileNow = Callable[[ComputationRequest, AfterExploring | None], Computation]

_MOST_BYTES = 100 << 20
"""When a process keeps its first program and the folder has more, the oldest files are deleted."""
_MOST_DRAWS = 1000
_ROOMS = "compiler expression graph graph/native nnet nnet/components optimizer program"
_FROM_NUMPY = {"ndarray", "dtype", "_frombuffer", "_reconstruct"}


class KeptPrograms:
    """The kept programs of one network with certain options; `facts` are all other that decides."""

    def __init__(self, folder: str, nnet: Nnet, *facts: object) -> None:
        code = [__version__, sys.version, np.__version__, *_sources()]
        self._folder, self._facts = folder, (structure_digest(nnet), code, facts)
        self._has_room = False

    def program(
        self, request: ComputationRequest, compile_now: CompileNow, draws_checks: bool
    ) -> Computation:
        """The program that was kept for a request; else what `compile_now` makes, which is kept.

        Random numbers are drawn as by compiling, with `draws_checks` also those of
        `draw_graph_checks`, which `compile_now` is then given to call.
        """
        name = sha256(repr((self._facts, draws_checks, request.key())).encode()).hexdigest()
        path = os.path.join(self._folder, name[:40])
        if (found := _read(path)) is not None:
            computation, sizes, num_draws = found
            if draws_checks:
                draw_checks(sizes)
            for _ in range(num_draws):
                tensor.random.rand()
            return computation
        sizes, state = [], tensor.random.get_state()

        def draw(builder: GraphBuilder, asked: ComputationRequest) -> None:
            nonlocal sizes, state
            sizes, state = draw_graph_checks(builder, asked), tensor.random.get_state()

        computation = compile_now(request, draw if draws_checks else None)
        if not self._has_room:
            self._has_room = True
            _drop_oldest(self._folder)
        if (count := _num_draws(state)) is not None:
            publish(pickle.dumps((computation.copy(), sizes, count), 5), path)
        return computation


def kept_programs(nnet: Nnet, options: OptimizeOptions, *facts: object) -> KeptPrograms | None:
    """The kept programs for a network and options; None if none are to be used.

    That is so with the environment variable NNET3TOOLS_NO_PROGRAM_CACHE, at --verbose=2, which logs
    what the compiler does, for components of the user's and without a folder that can be trusted.
    """
    unwanted = (
        os.environ.get("NNET3TOOLS_NO_PROGRAM_CACHE", "0") not in ("", "0")
        or log.get_verbose() >= 2
    )
    if unwanted or not all(type(c).__module__.startswith("nnet3tools.") for c in nnet.components):
        return None
    folder = cache_folder("programs")
    return None if folder is None else KeptPrograms(folder, nnet, vars(options), *facts)


def _sources() -> Iterator[tuple[object, ...]]:
    """Name, size and times of each source file that decides how requests are compiled."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for room in _ROOMS.split():
        with os.scandir(os.path.join(root, room)) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.name.endswith((".py", ".c")):
                    found = entry.stat()
                    yield room, entry.name, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _num_draws(state: tuple[Any, ...]) -> int | None:
    """How many numbers were drawn since the random generator had a state; None if too many."""
    generator, now = GlibcRand(), tensor.random.get_state()
    generator.set_state(state)
    for count in range(_MOST_DRAWS):
        if generator.state() == now:
            return count
        generator.rand()
    return None


def _drop_oldest(folder: str) -> None:
    """Delete the programs that were not used for longest, if all are too large together."""
    with contextlib.suppress(OSError):  # such as a file that another process deletes
        files = [(e.stat().st_mtime_ns, e.stat().st_size, e.path) for e in os.scandir(folder)]
        excess = sum(size for _, size, _ in files) - _MOST_BYTES
        excess += _MOST_BYTES // 2 if excess > 0 else 0
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            os.unlink(path)
            excess -= size


def _read(path: str) -> tuple[Computation, list[int], int] | None:
    """The contents of a file: a program, the arguments of `draw_checks`, a number of draws more."""
    if (found := open_kept(path)) is None:
        return None
    descriptor, content = found
    try:
        with contextlib.suppress(OSError):  # the file may be root's
            os.utime(descriptor)
        return _Unpickler(io.BytesIO(content)).load()
    except Exception as error:
        log.warning(f"Not using the compiled program {path}, compiling anew: {error}")
        return None
    finally:
        os.close(descriptor)


class _Unpickler(pickle.Unpickler):
    """Reads arrays and objects of this package's classes, which call nothing else."""

    def find_class(self, module: str, name: str) -> object:
        ours = module.startswith("nnet3tools.")
        if ours or (module.partition(".")[0] == "numpy" and name in _FROM_NUMPY):
            found: object = super().find_class(module, name)
            if not ours or isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"it has {module}.{name}")
