"""Alignment of utterances to graphs of their transcripts (AlignUtteranceWrapper)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.options import AlignOptions, SearchOptions
from nnet3tools.decoding.raw_lattice import raw_lattice
from nnet3tools.decoding.search import Search, new_search
from nnet3tools.decoding.traceback import BestPath, best_path
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.fst.epsilon import concatenate
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io import log
from nnet3tools.lang.self_loops import SelfLoops
from nnet3tools.nnet.hmm.transition_model import TransitionModel

_MIN_ACTIVE = 20
"""The default of Kaldi's FasterDecoder."""


def transition_log_probs(
    model: TransitionModel, transition_scale: float, self_loop_scale: float
) -> NDArray[np.float32]:
    """The scaled log-probability of each transition id; 0 for id 0 (GetScaledTransitionLogProb).

    If the scales differ, `self_loop_scale` applies to the choice between staying in a state and
    leaving it, and `transition_scale` to the choice among the arcs that leave it.
    """
    log_probs = model.log_probs.copy()
    log_probs[0] = 0.0
    if transition_scale == self_loop_scale:
        return log_probs * np.float32(transition_scale)
    transitions = model.transitions()
    leaving = np.array(SelfLoops(model, 1.0).leaving_log_probs, np.float32)[transitions.states]
    leaving[transitions.is_self_loop] = log_probs[transitions.is_self_loop]
    leaving[0] = 0.0
    directions = log_probs - leaving
    return np.float32(self_loop_scale) * leaving + np.float32(transition_scale) * directions


@dataclass
class Aligner:
    """Finds, for one acoustic model, the best path of an utterance's frames through its graph.

    `log_probs`: log-probabilities by transition id, which are added to graphs. `num_retried`:
    number of utterances that were aligned with the retry beam.
    """

    model: TransitionModel
    options: AlignOptions
    log_probs: NDArray[np.float32]
    num_retried: int = 0

    def align(self, key: str, graph: Fst, loglikes: NDArray[np.float32]) -> BestPath | None:
        """Best path of `loglikes` (frames, pdfs) to a final state; if none, warns, returns None."""
        if not graph.num_states:
            log.warning(f"Empty decoding graph for {key}")
            return None
        decoding_graph = self._prepared(key, graph)
        options = self.options
        decoder = self._decoded(decoding_graph, options.beam, loglikes)
        if not decoder.reached_final() and options.retry_beam != 0.0:
            self.num_retried += 1
            log.warning(f"Retrying utterance {key} with beam {options.retry_beam:g}")
            decoder = self._decoded(decoding_graph, options.retry_beam, loglikes)
        if not decoder.reached_final():
            log.warning(f"Did not successfully decode file {key}, len = {len(loglikes)}")
            return None
        decoder.finish()
        raw = raw_lattice(decoder, may_loop=True)
        if not raw.fst.num_states:
            log.warning(f"Did not successfully decode file {key}: costs are not finite")
            return None
        return best_path(raw)

    def _prepared(self, key: str, graph: Fst) -> DecodingGraph:
        DecodingGraph.check(graph, self.model, f"graph of {key}")
        weights = graph.weights - self.log_probs[graph.ilabels]
        graph = replace(graph, weights=weights, properties=0)
        if self.options.careful:
            graph = _with_loop(graph)
        return DecodingGraph.of(graph, self.model, f"graph of {key}")

    def _decoded(self, graph: DecodingGraph, beam: float, loglikes: NDArray[np.float32]) -> Search:
        decoder = new_search(graph, SearchOptions(beam, min_active=_MIN_ACTIVE, lattice_beam=0.0))
        decoder.start()
        decoder.advance(loglikes)
        return decoder


def _with_loop(graph: Fst) -> Fst:
    """A copy of `graph` whose final states have arcs to a second copy without final states.

    If an utterance uses up its words too early, its alignment then fails instead of being wrong
    (ModifyGraphForCarefulAlignment).
    """
    again = replace(graph, finals=np.full(graph.num_states, NOT_FINAL, np.float32), properties=0)
    size = again.num_states
    finals = np.append(again.finals, np.float32(0.0))
    before = Fst.from_arcs(
        size,
        finals,
        np.append(again.sources, size),
        np.append(again.ilabels, 0),
        np.append(again.weights, np.float32(0.0)),
        np.append(again.nextstates, again.start),
        np.append(again.olabels, 0),
    )
    return concatenate([graph, before])
