"""Programs that compute a stream in equal chunks and never end (Kaldi's nnet-compile-looped.cc).

The first chunk has all of the left context; each later chunk needs as many new input frames as it
has outputs. A program for several chunks is compiled, and `looped_computation` finds where the
state repeats; how many chunks that takes depends on the network.
"""

from __future__ import annotations

import math
import re
import time

import numpy as np
from numpy.typing import NDArray

from nnet3tools.compiler.compiler import Compiler
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import RequestError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.graph.context import NnetContext
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.io import log
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.pipeline import optimize
from nnet3tools.program.checker import check_computation
from nnet3tools.program.commands import GotoLabel
from nnet3tools.program.computation import Computation

_NUM_CHUNKS = (5, 10, 20, 40, 80)
"""Chunks that are compiled until the loop closes."""

LoopedRequests = tuple[ComputationRequest, ComputationRequest, ComputationRequest]
"""The first chunk, the second, and the third, whose shift all later chunks repeat."""


def chunk_size_for(nnet: Nnet, frame_subsampling_factor: int, advised: int) -> int:
    """The least number >= `advised` that the nnet's modulus and the subsampling factor divide."""
    multiple = math.lcm(nnet.modulus(), frame_subsampling_factor)
    return -(-advised // multiple) * multiple


def looped_requests(
    nnet: Nnet,
    chunk_size: int,
    frame_subsampling_factor: int,
    ivector_period: int,
    context: NnetContext,
    num_sequences: int = 1,
) -> LoopedRequests:
    """The requests for the first three chunks of a stream; rows are sorted by n, then t.

    Each later chunk is like the third. If the network has i-vectors, those of a chunk are at
    the multiples of `ivector_period` that no earlier chunk had.
    """
    for what, multiple in (
        ("the frame subsampling factor", frame_subsampling_factor),
        ("the network's modulus", nnet.modulus()),
        ("the i-vector period", ivector_period),
    ):
        if chunk_size % multiple:
            raise RequestError(f"chunk size {chunk_size} is not a multiple of {what}, {multiple}")
    n = np.arange(num_sequences)[:, None]
    has_ivector = nnet.input_dim("ivector") > 0
    seen = np.empty(0, np.int64)

    def spec(name: str, times: NDArray[np.integer]) -> IoSpecification:
        return IoSpecification(name, make_indexes(n, times).reshape(-1, 3))

    requests = []
    for chunk in range(3):
        begin = chunk * chunk_size
        first = -context.left if chunk == 0 else begin + context.right
        frames = np.arange(first, begin + chunk_size + context.right)
        request = ComputationRequest([spec("input", frames)])
        if has_ivector:
            ivector_times = np.setdiff1d(frames - frames % ivector_period, seen)
            seen = np.concatenate([seen, ivector_times])
            if len(ivector_times):
                request.inputs.append(spec("ivector", ivector_times))
        outputs = np.arange(begin, begin + chunk_size, frame_subsampling_factor)
        request.outputs.append(spec("output", outputs))
        requests.append(request)
    return requests[0], requests[1], requests[2]


def compile_looped(
    nnet: Nnet, options: OptimizeOptions, requests: LoopedRequests, *, check: bool = False
) -> Computation:
    """The looped program for the requests of its chunks, optimized.

    RequestError if the chunks cannot be computed in a loop. `check`: check it between all passes.
    """
    began = time.perf_counter()
    compiler = Compiler(nnet)
    for num_chunks in _NUM_CHUNKS:
        program = compiler.compile(_extrapolated(requests, num_chunks), CompilerOptions())
        optimized = optimize(program, PassContext(nnet, options, looped=True), check=check)
        if optimized.commands and isinstance(optimized.commands[-1], GotoLabel):
            check_computation(optimized, nnet)
            log.log(f"Spent {time.perf_counter() - began:.3g} seconds in looped compilation.")
            return optimized
        log.vlog(2, f"Looped compilation failed with {num_chunks} requests")
    raise RequestError(
        f"looped computation: in {_NUM_CHUNKS[-1]} chunks of this network no state came again; "
        "does it look at more than its last frames?"
    )


def _extrapolated(requests: LoopedRequests, num_chunks: int) -> list[ComputationRequest]:
    """The requests of `num_chunks` chunks; from the third on, each is the previous one shifted."""
    _, second, third = requests
    shift = int(third.inputs[0].indexes[0, 1] - second.inputs[0].indexes[0, 1])
    if _shifted(second, shift) != third:
        raise RequestError("the second and third chunk of a looped computation are not alike")
    return [*requests, *(_shifted(third, shift * i) for i in range(1, num_chunks - 2))]


def _shifted(request: ComputationRequest, t: int) -> ComputationRequest:
    """A copy of the request with all times greater by `t` frames."""

    def later(io: IoSpecification) -> IoSpecification:
        return replace(io, indexes=io.indexes + np.array([0, t, 0], np.int32))

    return replace(
        request,
        inputs=[later(io) for io in request.inputs],
        outputs=[later(io) for io in request.outputs],
    )


_REPLACED = re.compile(r"ReplaceIndex\(((?:[^()]|\([^()]*\))*), t, 0\)")


def set_ivector_period(nnet: Nnet, period: int) -> None:
    """Let the network ask for a new i-vector every `period` frames, in place.

    ReplaceIndex(ivector, t, 0), one i-vector for all times, becomes Round(ivector, period) (Kaldi's
    ModifyNnetIvectorPeriod). Networks that use ReplaceIndex in other ways cannot loop.
    """

    def rounded(match: re.Match[str]) -> str:
        inside = match.group(1)
        if not re.search(r"\bivector\b", inside):
            return match.group(0)
        return f"Round({inside}, {period})"

    lines = [line for line in nnet.config_lines() if "ReplaceIndex(" in line]
    changed = [_REPLACED.sub(rounded, line) for line in lines]
    if changed != lines:
        nnet.read_config(parse_config_lines("\n".join(changed), "the network's own config"))
