"""Context of a network: the frames of input around an output that it needs, and that it may use.

As in Kaldi's ComputeSimpleNnetContext (nnet-utils.cc), the context is found by trial: for a window
of input frames, it is found which outputs in the window can be computed. One request tries all
shifts of the window modulo the network's modulus, each as a sequence n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.graph.spot_checks import draw_graph_checks
from nnet3tools.nnet.components.base import BatchStatisticsComponent
from nnet3tools.nnet.indexes import BoolArray, make_indexes
from nnet3tools.nnet.nnet import Nnet


class NnetContext(NamedTuple):
    """Frames of input needed before and after the outputs, and the period of the network in t."""

    left: int
    right: int
    modulus: int


_FIRST_WINDOW, _WINDOW_LIMIT = 40, 800
_FIRST_SHIFTS = 16
"""Shifts tried first; a window that is too small usually fails for one of them."""
_CHUNK_ROWS = 1 << 19
"""Rows of one request; a row takes about 150 bytes."""
_MAX_ROWS = 1 << 27
"""The largest number of rows to try. It takes about 10 s, for example Round(ivector, 10000)."""


def compute_simple_nnet_context(nnet: Nnet) -> NnetContext:
    """Context of a network with input "input", output "output" and perhaps input "ivector".

    UserError for other networks, and for a context that is too wide to be found.
    """
    if not nnet.is_simple():
        raise UserError(
            "the network is not a simple one: it needs an input-node 'input', an output-node "
            "'output', and no other input than 'ivector'"
        )
    plan = NetworkPlan(nnet)
    if nnet.node_index("ivector") < 0 and (frames := _fixed_window(plan)) is not None:
        local = NnetContext(max(-frames[0], 0), max(frames[1], 0), nnet.modulus())
        if local.left + local.right < _WINDOW_LIMIT // 2:
            return local  # 20 ms faster than by trial
    modulus = nnet.modulus()
    window = _FIRST_WINDOW
    _check_period(plan)
    while window < _WINDOW_LIMIT:
        if (context := _context_in_window(plan, modulus, window)) is not None:
            left, right = context
            # The modulus itself is tried as well: it must give the same context as shift 0.
            if left[0] != left[-1] or right[0] != right[-1]:
                raise UserError("the network's context changes with time: cannot tell what it is")
            return NnetContext(int(left.max()), int(right.max()), modulus)
        window *= 2
    raise UserError(
        f"cannot find the network's context: no output is computable from {window // 2} frames "
        "of input"
    )


def _context_in_window(
    plan: NetworkPlan, modulus: int, window: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """(left, right context) at shifts 0 to `modulus` in t; None if `window` frames are too few."""
    parts, first, step = [], 0, _FIRST_SHIFTS
    most = max(1, _CHUNK_ROWS // _rows_of_shift(plan, window))
    while first <= modulus:
        shifts = np.arange(first, min(first + min(step, most), modulus + 1))
        first, step = first + len(shifts), 4 * step
        computable = _computable(plan, shifts, window)
        left = computable.argmax(axis=1)
        positions = np.arange(window)
        after = (positions > left[:, None]) & ~computable
        end = np.where(after.any(axis=1), after.argmax(axis=1), window)
        if not computable.any(axis=1).all():
            return None
        parts.append((left, window - end))
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _rows_of_shift(plan: NetworkPlan, window: int) -> int:
    has_ivector = plan.nnet.node_index("ivector") >= 0
    return window * 2 + (plan.nnet.modulus() + window if has_ivector else 0)


def _check_period(plan: NetworkPlan) -> None:
    """Raise UserError if the network's period in t is too long for trying all shifts."""
    modulus = plan.nnet.modulus()
    if modulus * _rows_of_shift(plan, 16 * _FIRST_WINDOW) > _MAX_ROWS:
        raise UserError(
            f"cannot find the network's context: by its Round() and Switch() it repeats every "
            f"{modulus} frames only, too many to try all"
        )


def _request(plan: NetworkPlan, shifts: np.ndarray, window: int) -> ComputationRequest:
    """A request: in sequence n, input and output at t = shifts[n] to shifts[n] + window - 1."""
    n = np.arange(len(shifts))[:, None]
    t = shifts[:, None] + np.arange(window)
    rows = make_indexes(n, t)
    inputs = [IoSpecification("input", rows)]
    if plan.nnet.node_index("ivector") >= 0:
        # Wide enough for descriptors that round t down.
        t_of_ivector = shifts[:, None] + np.arange(-plan.nnet.modulus(), window)
        inputs.append(IoSpecification("ivector", make_indexes(n, t_of_ivector)))
    return ComputationRequest(inputs, [IoSpecification("output", rows)])


def _computable(plan: NetworkPlan, shifts: np.ndarray, window: int) -> BoolArray:
    """Whether the network can compute the output, (shifts, window).

    Row i is for inputs t = shifts[i] ... shifts[i] + window - 1, and outputs at the same times.
    """
    request = _request(plan, shifts, window)
    builder = GraphBuilder(plan)
    builder.compute(request)
    return builder.computable_outputs(request)[0].reshape(len(shifts), window)


def draw_before_statistics(nnet: Nnet) -> None:
    """Draw the random numbers that Kaldi draws while it finds an acoustic model's context.

    Kaldi does so when it reads the model, before it invents random statistics for batch norm
    components that have none. Without such a component the draws have no effect, and are left out.
    """
    if any(isinstance(c, BatchStatisticsComponent) and c.count == 0.0 for c in nnet.components):
        _draw_context_checks(nnet)


def _draw_context_checks(nnet: Nnet) -> None:
    plan = NetworkPlan(nnet)
    _check_period(plan)
    window, shift = _FIRST_WINDOW, 0
    while window < _WINDOW_LIMIT and shift <= nnet.modulus():
        tensor.random.rand()  # Kaldi picks an n
        request = _request(plan, np.array([shift]), window)
        builder = GraphBuilder(plan)
        builder.compute(request)
        draw_graph_checks(builder, request)
        if builder.computable_outputs(request)[0].any():
            shift += 1
        else:
            window, shift = 2 * window, 0


def is_local_in_time(nnet: Nnet) -> bool:
    """Whether each output needs exactly a fixed window of "input" frames.

    If so, every chunk with that window gives the same output. This holds for feed-forward networks
    without i-vectors, pooling and zero-padded convolutions.
    """
    return _fixed_window(NetworkPlan(nnet)) is not None


def _fixed_window(plan: NetworkPlan) -> tuple[int, int] | None:
    """(first, last) frame that each output needs, relative to its time; None if they vary."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for node in reversed(plan.from_outputs):
        rule = plan.rules[node]
        shifts = rule.time_shifts()
        if plan.back_edges or rule.has_fixed_times or shifts is None or not rule.is_strict:
            return None
        first[node] = min((first[source] + t for source, t in shifts), default=0)
        last[node] = max((last[source] + t for source, t in shifts), default=0)
    output = plan.nnet.node_index("output")
    return first[output], last[output]


def looks_ahead_within(nnet: Nnet, context: NnetContext) -> bool:
    """Whether no output uses input later than its right context.

    If so, all chunks that begin at the same frame give the same output, as in networks whose
    recurrences all go forward in time.
    """
    plan = NetworkPlan(nnet)
    shifts = {node: plan.rules[node].time_shifts() for node in plan.from_outputs}
    reach = dict.fromkeys(range(nnet.num_nodes), 0)
    # Longest paths. A change in round num_nodes + 1 means that a recurrence goes backward in time.
    for _ in range(nnet.num_nodes + 1):
        changed = False
        for node in reversed(plan.from_outputs):
            if (of_node := shifts[node]) is None:
                return False
            furthest = max((t + reach[source] for source, t in of_node), default=0)
            if furthest > reach[node]:
                reach[node], changed = furthest, True
        if not changed:
            return reach[nnet.node_index("output")] <= context.right
    return False
