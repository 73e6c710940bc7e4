"""Forward-backward over acyclic or cyclic acceptors, one a sequence: the numerator of LF-MMI.

The log-probability of a sequence is that of all paths of its acceptor with one arc a frame,

    log sum over paths of exp(sum over arcs of (y(t, pdf) - cost) - final cost),

computed in the log domain: acceptors allow few paths, and each of them may be unlikely. The
derivative with respect to y(t, n) is the posterior probability of the arcs with pdf n at t (Kaldi's
chain/chain-numerator.h and chain-generic-numerator.h).

`Paths` has the arcs of all sequences frame by frame; chain/paths.py makes it from a Supervision. On
a GPU the operator also takes PackedPaths.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator


@dataclass(frozen=True, eq=False)
class FrameArcs:
    """Arcs (A,) that all sequences may take in one frame.

    `sources` are states of this frame, `destinations` of the next one, both counted from the
    frame's first state; `cells` are places row * pdfs + pdf in the output, counted from the
    frame's first cell; `costs` (float64) are negative log-probabilities; `parts` are the
    numbers of the acceptors that have the arcs.
    """

    sources: np.ndarray
    destinations: np.ndarray
    cells: np.ndarray
    costs: np.ndarray
    parts: np.ndarray


@dataclass(frozen=True, eq=False)
class Paths:
    """Acceptors (graphs of allowed paths) of all sequences; `frames[t]` has the arcs of frame t.

    States of frame t are numbered from `first_states[t]` (frames + 2 numbers: the last two begin
    and end the states after the last frame), cells from `first_cells[t]`. Paths begin in the states
    `starts`, one for each of `num_parts` acceptors, and end in `finals` with costs `final_costs`;
    `final_parts` are the numbers of their acceptors.
    """

    frames: list[FrameArcs]
    first_states: np.ndarray
    first_cells: np.ndarray
    starts: np.ndarray
    finals: np.ndarray
    final_costs: np.ndarray
    final_parts: np.ndarray

    @property
    def num_parts(self) -> int:
        """The number of acceptors."""
        return len(self.starts)

    def distinct_frames(self) -> tuple[list[FrameArcs], np.ndarray]:
        """The distinct objects of `frames`, and for each frame the number of its object."""
        distinct = list({id(frame): frame for frame in self.frames}.values())
        number = {id(frame): i for i, frame in enumerate(distinct)}
        return distinct, np.array([number[id(frame)] for frame in self.frames], np.int64)


@dataclass(frozen=True, eq=False)
class PackedPaths:
    """A Paths object packed into two arrays on a GPU, by packed_paths.py.

    There are at most `num_parts` acceptors, with at most `num_states` states in all. The sizes of
    `ints` (int32) and `costs` (float64) are rounded up, so a graph that was captured for one
    minibatch serves others.
    """

    ints: Array
    costs: Array
    num_parts: int
    num_states: int
    num_frames: int


@operator(writes=("results", "deriv"))
@np.errstate(invalid="ignore")  # where an acceptor has no path
def numerator(
    results: Array,
    output: Array,
    paths: Paths | PackedPaths,
    deriv: Array | None = None,
    weight: float = 1.0,
) -> None:
    """Compute the log-probability of all acceptors, and add `weight` times its derivative to deriv.

    `output` (rows, pdfs) is the network's. `results` (1,) float64 receives the log-probability,
    which is -inf if an acceptor has no path; the values in `deriv` are then undefined.
    """
    assert isinstance(paths, Paths)
    values = np.asarray(output, np.float64).ravel()
    num_states = int(paths.first_states[-1])
    alpha, beta = np.full(num_states, -np.inf), np.full(num_states, -np.inf)
    alpha[paths.starts] = 0.0
    arcs = []
    for t, frame in enumerate(paths.frames):
        sources = frame.sources + paths.first_states[t]
        destinations = frame.destinations + paths.first_states[t + 1]
        cells = frame.cells + paths.first_cells[t]
        scores = values[cells] - frame.costs
        np.logaddexp.at(alpha, destinations, alpha[sources] + scores)
        arcs.append((sources, destinations, cells, scores))
    totals = np.full(paths.num_parts, -np.inf)
    np.logaddexp.at(totals, paths.final_parts, alpha[paths.finals] - paths.final_costs)
    results[0] = totals.sum()
    if deriv is None:
        return
    beta[paths.finals] = -paths.final_costs - totals[paths.final_parts]
    posteriors = np.zeros(output.size)
    for sources, destinations, cells, scores in reversed(arcs):
        scores = scores + beta[destinations]
        np.logaddexp.at(beta, sources, scores)
        np.add.at(posteriors, cells, np.exp(scores + alpha[sources]))
    deriv += weight * posteriors.reshape(output.shape)
