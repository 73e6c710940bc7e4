"""From a request to an optimized program, with a cache of earlier programs."""

from __future__ import annotations

import gc
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import ProgramError
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.spot_checks import draw_graph_checks
from nnet3tools.io import log
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.expand import expand_computation
from nnet3tools.optimizer.kept_programs import KeptPrograms, kept_programs
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.shortcut import mini_request
from nnet3tools.program.computation import Computation
from nnet3tools.program.lifetimes import max_memory_use

if TYPE_CHECKING:  # a kept program needs none of these
    from nnet3tools.compiler.compiler import AfterExploring, Compiler
    from nnet3tools.optimizer.pipeline import AfterPass
    from nnet3tools.optimizer.rewrites import Rewrites
    from nnet3tools.program.analysis import Analyst

_KINDS_OF_WORK = (
    "compilation",
    "optimization",
    "shortcut expansion",
    "checking",
    # Kaldi precomputes command lists for a GPU; here lowering does, so there is no time to report.
    "computing indexes",
)


class Stored(Protocol):
    """Interface of a program in the cache that is decoded only when it is needed."""

    def load(self) -> Computation | None:
        """The decoded program; None if it cannot be used."""

    def written(self, binary: bool) -> bytes:
        """The bytes of the program in text or binary form."""


class CachingOptimizingCompiler:
    """Compiles and optimizes requests for one network; equal requests give the same object.

    The network's structure must not change afterwards; its parameters may.
    """

    def __init__(
        self,
        nnet: Nnet,
        optimize_options: OptimizeOptions | None = None,
        compiler_options: CompilerOptions | None = None,
        after_exploring: AfterExploring | None = None,
        after_pass: AfterPass | None = None,
    ) -> None:
        """Make a compiler for `nnet`.

        `after_exploring(builder, request)` is called at each full compilation, when `builder` has
        the graph and before the graph is pruned. `after_pass(name, before, after)` is called with
        the pass name and both programs after each pass.
        """
        self.nnet = nnet
        self._after_exploring, self._after_pass = after_exploring, after_pass
        self.optimize_options = optimize_options or OptimizeOptions()
        self.options = compiler_options or CompilerOptions()
        self.cache: OrderedDict[ComputationRequest, Computation | Stored] = OrderedDict()
        """The most recently used program is last."""
        self.seconds = dict.fromkeys(("total", *_KINDS_OF_WORK, "I/O"), 0.0)
        """Seconds spent so far, in total (without I/O) and by kind of work."""
        self.num_compiled = 0
        """Number of requests without a program in the cache, those for two sequences included."""
        self.vouched = True
        """Whether every program in the cache was compiled for this very network structure; cache
        files of Kaldi's do not say what they were made for."""
        self._compiler: Compiler | None = None
        self._rewrites: Rewrites | None = None

    def compile(self, request: ComputationRequest) -> Computation:
        """The optimized program for a request, from the cache if it is there.

        RequestError if this network cannot compute the request.
        """
        latest, program = next(reversed(self.cache.items()), (None, None))
        # As a rule, and cheaper than hashes.
        if isinstance(program, Computation) and (request is latest or request == latest):
            return program
        if (found := self._cached(request)) is not None:
            return found
        began = time.perf_counter()
        try:
            request.validate(self.nnet)
            with _no_garbage_collection():
                computation = self._compile(request)
        finally:
            self.seconds["total"] += time.perf_counter() - began
        return computation

    def _compile(self, request: ComputationRequest) -> Computation:
        if (cached := self._cached(request)) is not None:
            return cached
        self.num_compiled += 1
        began = time.perf_counter()
        computation = self._compile_via_shortcut(request) if self.options.use_shortcut else None
        if computation is None:
            computation = self._compile_whole(request)
        self.insert(request, computation)
        _log_size(f"total for {request.summary()}", computation, began)
        return computation

    def _cached(self, request: ComputationRequest) -> Computation | None:
        """The program in the cache, decoded if necessary; None if there is none."""
        if (found := self.cache.get(request)) is None:
            return None
        if not isinstance(found, Computation):
            if (program := self._expand_stored(request)) is None:
                began = time.perf_counter()
                program = found.load()
                self.seconds["I/O"] += time.perf_counter() - began
            if program is None:
                del self.cache[request]
                return None
            self.cache[request] = found = program
        self.cache.move_to_end(request)
        return found

    def _expand_stored(self, request: ComputationRequest) -> Computation | None:
        """The program, expanded from the one for two sequences; None if that is not in the cache.

        For a TDNN of four layers and 512 sequences this takes 7 ms, compiling 18 ms, and
        reading the expanded program 40 ms.
        """
        mini = mini_request(request) if self.options.use_shortcut else None
        return self._compile_via_shortcut(request) if mini and mini[0] in self.cache else None

    def insert(self, request: ComputationRequest, computation: Computation | Stored) -> None:
        """Put a program into the cache; if it is full, the least recently used one is dropped."""
        self.cache[request] = computation
        self.cache.move_to_end(request)
        while len(self.cache) > max(1, self.options.cache_capacity):
            self.cache.popitem(last=False)

    def time_report(self) -> str:
        """The text about compiling time that Kaldi logs at a program's end."""
        total, io = self.seconds["total"], self.seconds["I/O"]
        parts = [f"{self.seconds[kind]:.3g} {kind}" for kind in _KINDS_OF_WORK]
        misc = max(0.0, total - sum(self.seconds[kind] for kind in _KINDS_OF_WORK))
        return (
            f"{total:.3g} seconds taken in nnet3 compilation total (breakdown: {', '.join(parts)}, "
            f"{misc:.3g} misc.) + {io:.3g} I/O."
        )

    def log_time(self) -> None:
        """Log the time report, if there is any time to report."""
        if self.seconds["total"] > 0.0 or self.seconds["I/O"] > 0.0:
            log.log(self.time_report())

    def _compile_via_shortcut(self, request: ComputationRequest) -> Computation | None:
        """The program, compiled for two sequences and expanded; None if sequences are not alike."""
        if (mini := mini_request(request)) is None:
            return None
        small, num_sequences = mini
        # The small program goes through the cache, too: minibatches of other sizes share it.
        computation = self._compile(small)
        began = time.perf_counter()
        try:
            expanded = expand_computation(computation, self.nnet, num_sequences)
        except ProgramError as error:
            log.vlog(1, f"shortcut compilation did not work, compiling in full: {error}")
            return None
        finally:
            self.seconds["shortcut expansion"] += time.perf_counter() - began
        _log_size(f"expansion to {num_sequences} sequences", expanded, began)
        if log.get_verbose() >= 3:
            from nnet3tools.program.analysis import Analyst

            self._check(expanded, request, Analyst(self.nnet))
        return expanded

    @cached_property
    def _kept(self) -> KeptPrograms | None:
        """Programs that earlier processes compiled; None if a caller watches the compilation."""
        if self._after_pass or self._after_exploring not in (None, draw_graph_checks):
            return None
        return kept_programs(self.nnet, self.optimize_options, self.options.output_debug_info)

    def _compile_whole(self, request: ComputationRequest) -> Computation:
        """The program for a request as it stands, from the cache folder if it is there."""
        if self._kept is None:
            return self._compile_now(request, self._after_exploring)
        return self._kept.program(request, self._compile_now, self._after_exploring is not None)

    def _compile_now(
        self, request: ComputationRequest, after_exploring: AfterExploring | None
    ) -> Computation:
        from nnet3tools.compiler.compiler import Compiler
        from nnet3tools.optimizer.pass_context import PassContext
        from nnet3tools.optimizer.pipeline import optimize
        from nnet3tools.optimizer.rewrites import Rewrites

        began = time.perf_counter()
        if self._compiler is None:
            self._compiler, self._rewrites = Compiler(self.nnet), Rewrites()
        computation = self._compiler.compile([request], self.options, after_exploring)
        self.seconds["compilation"] += time.perf_counter() - began
        _log_size(f"compilation of {request.summary()}", computation, began)
        facts = self.nnet, self.optimize_options, request.max_output_time
        context = PassContext(*facts, components=self._compiler.components)
        self._log_program("Generated", computation)
        began = time.perf_counter()
        # Programs of recurrent networks differ in their commands, too.
        rewrites = None if self._compiler.plan.back_edges else self._rewrites
        optimized = optimize(computation, context, rewrites=rewrites, after_pass=self._after_pass)
        self.seconds["optimization"] += time.perf_counter() - began
        _log_size("optimization", optimized, began)
        self._check(optimized, request, context.analyst)
        self._log_program("Optimized", optimized)
        return optimized

    def _log_program(self, what: str, computation: Computation) -> None:
        if log.get_verbose() >= 4:
            from nnet3tools.program.printing import program_text

            log.vlog(4, f"{what} program:\n{program_text(computation, self.nnet)}")

    def _check(
        self, computation: Computation, request: ComputationRequest, analyst: Analyst
    ) -> None:
        from nnet3tools.program.checker import check_computation

        began = time.perf_counter()
        check_computation(computation, self.nnet, request, analyst=analyst)
        self.seconds["checking"] += time.perf_counter() - began


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Scope in which Python's garbage collection is off.

    Compiling makes tens of thousands of lasting objects without cycles, which collection would
    search again and again in a tenth of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _log_size(what: str, computation: Computation, began: float) -> None:
    """At verbose 2, log the size of the program `what` and the time since `began`."""
    if log.get_verbose() >= 2:
        log.vlog(
            2,
            f"{what}: {1000 * (time.perf_counter() - began):.1f} ms, "
            f"{len(computation.commands)} commands, {len(computation.matrices) - 1} matrices, "
            f"peak bytes {max_memory_use(computation)}",
        )
