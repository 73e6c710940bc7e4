"""From a request to an optimized program, with a cache of what was compiled before."""

from __future__ import annotations

import time
from collections import OrderedDict

from nnet3tools.compiler.compiler import Compiler
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import ProgramError
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.spot_checks import draw_graph_checks
from nnet3tools.io import log
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.expand import expand_computation
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pipeline import optimize
from nnet3tools.optimizer.shortcut import mini_request
from nnet3tools.program.checker import check_computation
from nnet3tools.program.computation import Computation
from nnet3tools.program.printing import program_text

__all__ = ["CachingOptimizingCompiler"]


class CachingOptimizingCompiler:
    """Compiles and optimizes requests for one network; equal requests give the same object.

    The network's structure must not change while this is in use (its parameters may).
    """

    def __init__(
        self,
        nnet: Nnet,
        optimize_options: OptimizeOptions | None = None,
        compiler_options: CompilerOptions | None = None,
        draw_spot_checks: bool = False,
    ) -> None:
        """`draw_spot_checks`: spend random numbers as Kaldi's compiler does (graph.spot_checks)."""
        self.nnet = nnet
        self.draw_spot_checks = draw_spot_checks
        self.optimize_options = optimize_options or OptimizeOptions()
        self.options = compiler_options or CompilerOptions()
        self.cache: OrderedDict[ComputationRequest, Computation] = OrderedDict()
        """Most recently used last."""
        self.seconds = {"compilation": 0.0, "optimization": 0.0, "expansion": 0.0, "checking": 0.0}
        """Time spent so far, by kind of work."""
        self._compiler: Compiler | None = None

    def compile(self, request: ComputationRequest) -> Computation:
        """The program for a request, from the cache if it is there.

        Raises RequestError for a request that this network cannot fulfil.
        """
        if (found := self.cache.get(request)) is not None:
            self.cache.move_to_end(request)
            return found
        request.validate(self.nnet)
        computation = self._compile_via_shortcut(request) if self.options.use_shortcut else None
        if computation is None:
            computation = self._compile_whole(request)
        self.insert(request, computation)
        return computation

    def insert(self, request: ComputationRequest, computation: Computation) -> None:
        """Put a program into the cache; the least recently used goes if there are too many."""
        self.cache[request] = computation
        self.cache.move_to_end(request)
        while len(self.cache) > max(1, self.options.cache_capacity):
            self.cache.popitem(last=False)

    def time_report(self) -> str:
        """Time spent, as Kaldi logs it at the end of a program."""
        parts = ", ".join(f"{value:.3g} {kind}" for kind, value in self.seconds.items())
        total = sum(self.seconds.values())
        return f"{total:.3g} seconds taken in nnet3 compilation total (breakdown: {parts})"

    def _compile_via_shortcut(self, request: ComputationRequest) -> Computation | None:
        """Compile for two sequences and expand; None where the request does not lend itself."""
        if (mini := mini_request(request)) is None:
            return None
        small, num_sequences = mini
        # The small program goes through the cache, too: minibatches of other sizes share it.
        computation = self.compile(small)
        began = time.perf_counter()
        try:
            expanded = expand_computation(computation, self.nnet, num_sequences)
        except ProgramError as error:
            log.vlog(1, f"shortcut compilation did not work, compiling in full: {error}")
            return None
        finally:
            self.seconds["expansion"] += time.perf_counter() - began
        if log.get_verbose() >= 3:
            self._check(expanded, request)
        return expanded

    def _compile_whole(self, request: ComputationRequest) -> Computation:
        began = time.perf_counter()
        if self._compiler is None:
            self._compiler = Compiler(self.nnet)
        if self.draw_spot_checks:
            draw_graph_checks(self._compiler.plan, request)
        computation = self._compiler.compile([request], self.options)
        self.seconds["compilation"] += time.perf_counter() - began
        self._check(computation, request, check_rewrite=True)
        self._log_program("Generated", computation)
        began = time.perf_counter()
        optimized = optimize(computation, self.nnet, self.optimize_options, request.max_output_time)
        self.seconds["optimization"] += time.perf_counter() - began
        self._check(optimized, request)
        self._log_program("Optimized", optimized)
        return optimized

    def _log_program(self, what: str, computation: Computation) -> None:
        if log.get_verbose() >= 4:
            log.vlog(4, f"{what} program:\n{program_text(computation, self.nnet)}")

    def _check(
        self, computation: Computation, request: ComputationRequest, check_rewrite: bool = False
    ) -> None:
        began = time.perf_counter()
        check_computation(computation, self.nnet, request, check_rewrite=check_rewrite)
        self.seconds["checking"] += time.perf_counter() - began
