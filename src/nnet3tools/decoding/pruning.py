"""Pruning of tokens and links that are on no path within a beam of the best path."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.frames import Frame, Links

_Floats = NDArray[np.float32]
_INFINITY = np.float32(np.inf)


def prune(
    frames: list[Frame], weights: _Floats, beam: np.float32, extra: _Floats, first_new: int
) -> None:
    """Remove tokens and links outside the beam, in place, from the last frame to the first.

    `weights` are the graph's arc weights. A token's extra cost is the cost of the best path through
    it minus that of the best path; `extra` has those of the last frame's tokens. Frames before
    `first_new` were pruned before: there, pruning stops at a frame that does not change.
    """
    later = None
    for number in range(len(frames) - 1, -1, -1):
        frame = frames[number]
        extra, epsilon = _follow_epsilon(frame, extra, weights, beam)
        before = frames[number - 1].costs if number else _NO_COSTS
        extra_before, emitting = _follow_emitting(frame, extra, before, weights, beam)
        numbers, changed = _keep(frame, extra <= beam, emitting, epsilon)
        if later is not None:
            later.emitting.sources = numbers[later.emitting.sources]
        if not changed and number < first_new:
            return
        extra, later = extra_before, frame


_NO_COSTS = np.zeros(0, np.float32)


def _follow_epsilon(
    frame: Frame, extra: _Floats, weights: _Floats, beam: np.float32
) -> tuple[_Floats, NDArray[np.bool_]]:
    """(extra costs of this frame's tokens, mask of the epsilon links to keep).

    `extra` are the extra costs by paths without epsilons, `weights` the graph's arc weights.
    """
    links = frame.epsilon
    if not len(links.arcs):
        return extra, np.zeros(0, bool)
    detour = _detours(links, frame.costs, frame.costs, weights)
    while True:
        extras = _extra_of_links(extra[links.targets], detour, beam)
        better = extra.copy()
        np.minimum.at(better, links.sources, extras)
        if np.array_equal(better, extra, equal_nan=True):
            return extra, extras <= beam
        extra = better


def _follow_emitting(
    frame: Frame, extra: _Floats, costs_before: _Floats, weights: _Floats, beam: np.float32
) -> tuple[_Floats, NDArray[np.bool_]]:
    """(extra costs of the previous frame's tokens, mask of the emitting links to keep).

    `extra` are the extra costs of this frame's tokens, `costs_before` the previous frame's costs,
    `weights` the graph's arc weights. Links with extra costs up to `beam` are kept.
    """
    links = frame.emitting
    detour = _detours(links, costs_before, frame.costs, weights)
    extras = _extra_of_links(extra[links.targets], detour, beam)
    before = np.full(len(costs_before), _INFINITY)
    np.minimum.at(before, links.sources, extras)
    return before, extras <= beam


def _extra_of_links(after: _Floats, detour: _Floats, beam: np.float32) -> _Floats:
    """The extra cost of each link: cost of the best path through the link minus the best path's.

    It is the target's extra cost (`after`) plus `detour`: the cost of reaching the target by the
    link minus the target's least cost. It is infinite outside the beam, and at least 0 despite
    rounding.
    """
    extra = np.maximum(after + detour, np.float32(0))
    return np.where((after <= beam) & (extra <= beam), extra, _INFINITY)


def _detours(
    links: Links, source_costs: _Floats, target_costs: _Floats, weights: _Floats
) -> _Floats:
    """The cost of each link's path to its target minus the cost of the target's best path.

    `source_costs` and `target_costs` are by number of a token, `weights` by arc of the graph. Costs
    are summed in the decoder's order, so the best link has exactly 0.
    """
    costs = source_costs[links.sources] + links.acoustic + weights[links.arcs]
    return costs - target_costs[links.targets]


def _keep(
    frame: Frame, kept: NDArray[np.bool_], emitting: NDArray[np.bool_], epsilon: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], bool]:
    """Remove tokens and links of a frame, in place: those whose mask (`kept` for tokens) is False.

    Returns the new number of each former token, and whether anything was removed.
    """
    numbers = np.cumsum(kept) - 1
    changed = not (kept.all() and emitting.all() and epsilon.all())
    if changed:
        frame.emitting = frame.emitting.only(emitting)
        frame.epsilon = frame.epsilon.only(epsilon)
        frame.emitting.targets = numbers[frame.emitting.targets]
        frame.epsilon.sources = numbers[frame.epsilon.sources]
        frame.epsilon.targets = numbers[frame.epsilon.targets]
        frame.states, frame.costs = frame.states[kept], frame.costs[kept]
    return numbers, changed
