"""Decoding of whole utterances, with the log lines of Kaldi's DecodeUtteranceLatticeFaster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.options import LatticeDecoderOptions
from nnet3tools.decoding.phone_determinization import PhoneDeterminizer
from nnet3tools.decoding.raw_lattice import raw_lattice
from nnet3tools.decoding.search import Search, new_search
from nnet3tools.decoding.traceback import BestPath, best_path
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.lattice import CompactLattice, Lattice
from nnet3tools.io import log
from nnet3tools.nnet.hmm.transition_model import TransitionModel


@dataclass(frozen=True)
class Decoded:
    """A decoded utterance; `is_partial` means that the best path reaches no final state."""

    best: BestPath
    lattice: Lattice | CompactLattice
    is_partial: bool

    @property
    def loglike(self) -> float:
        """Log-likelihood of the best path; the acoustic part contains the acoustic scale."""
        return -sum(self.best.costs)

    @property
    def num_frames(self) -> int:
        """Number of frames of the best path."""
        return len(self.best.alignment)


@dataclass
class DecodingTotals:
    """Sums over decoded utterances: log-likelihoods, frames, results without a final state."""

    loglike: float = 0.0
    num_frames: int = 0
    num_partial: int = 0

    def add(self, decoded: Decoded) -> None:
        """Add the log-likelihood and number of frames of an utterance."""
        self.loglike += decoded.loglike
        self.num_frames += decoded.num_frames
        self.num_partial += decoded.is_partial


class UtteranceDecoder:
    """Decodes utterances with one acoustic model and options; each utterance may have its graph."""

    def __init__(
        self,
        model: TransitionModel,
        options: LatticeDecoderOptions,
        acoustic_scale: float,
        allow_partial: bool,
    ) -> None:
        """Prepare to decode; `acoustic_scale`, a factor of log-likelihoods, is undone in lattices.

        Without `allow_partial`, an utterance that reaches no final state has no result.
        """
        self._options = options
        self._determinizer = None
        if options.determinize_lattice:
            self._determinizer = PhoneDeterminizer(model, options.lattice_beam, options)
        self.acoustic_scale, self._allow_partial = acoustic_scale, allow_partial

    def decoder(self, graph: DecodingGraph) -> Search:
        """A new search over a graph, with this decoder's options."""
        return new_search(graph, self._options)

    def decode(self, decoder: Search, key: str, loglikes: NDArray[np.float32]) -> Decoded | None:
        """Decode `loglikes` (frames, pdfs) by `decoder`; None, with a warning, if it fails."""
        decoder.start()
        decoder.advance(loglikes)
        return self.finish(decoder, key)

    def finish(self, decoder: Search, key: str) -> Decoded | None:
        """End the search for utterance `key`; return its result, or None, with a warning."""
        if not decoder.is_alive:
            log.warning(f"Failed to decode utterance with id {key}")
            return None
        is_partial = not decoder.reached_final()
        if is_partial and not self._allow_partial:
            log.warning(
                f"Not producing output for utterance {key} since no final-state reached and "
                "--allow-partial=false."
            )
            return None
        if is_partial:
            log.warning(
                f"Outputting partial output for utterance {key} since no final-state reached"
            )
        decoder.finish()
        raw = raw_lattice(decoder)
        if not raw.fst.num_states:
            log.warning(f"Failed to decode utterance with id {key}: costs are not finite")
            return None
        return Decoded(best_path(raw), self._lattice(raw, key), is_partial)

    def _lattice(self, raw: Lattice, key: str) -> Lattice | CompactLattice:
        lattice: Lattice | CompactLattice = raw
        if self._determinizer is not None:
            lattice, complete = self._determinizer.determinize(raw)
            if not complete:
                log.warning(f"Determinization finished earlier than the beam for utterance {key}")
        if self.acoustic_scale not in (0.0, 1.0):
            lattice = lattice.scaled(acoustic_scale=1.0 / self.acoustic_scale)
        return lattice
