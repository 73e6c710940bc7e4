"""The decoding loop of nnet3-latgen-faster and nnet3-latgen-faster-batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from nnet3tools.cli.decoding_io import DecodingOutputs
from nnet3tools.cli.latgen_options import LatgenOptions
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.search import Search
from nnet3tools.decoding.utterance import DecodingTotals, UtteranceDecoder
from nnet3tools.errors import naming
from nnet3tools.executor.chunks import Ivectors
from nnet3tools.executor.utterance_computer import UtteranceComputer
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.recognizer.outputs import outputs_in_order
from nnet3tools.recognizer.utterances import InputPauses, UtteranceCounts


@dataclass
class Latgen:
    """Decodes utterances to lattices with one model; each may have a graph of its own."""

    decoding: UtteranceDecoder
    counts: UtteranceCounts
    totals: DecodingTotals = field(default_factory=DecodingTotals)
    _graph: DecodingGraph | None = None
    _search: Search | None = None

    @classmethod
    def of(
        cls,
        model: TransitionModel,
        options: LatgenOptions,
        acoustic_scale: float,
        counts: UtteranceCounts,
    ) -> Latgen:
        """A Latgen with the options of a program."""
        decoding = UtteranceDecoder(model, options.decoder, acoustic_scale, options.allow_partial)
        return cls(decoding, counts)

    def decode_all(
        self,
        options: LatgenOptions,
        tables: list[str],
        computer: UtteranceComputer,
        utterances: Iterable[tuple[str, np.ndarray, Ivectors | None, DecodingGraph]],
        pauses: InputPauses,
    ) -> None:
        """Decode utterances (key, features, i-vectors, graph); writes the results to `tables`.

        NothingDoneError if no utterance could be decoded.
        """
        with contextlib.ExitStack() as stack:
            outputs = DecodingOutputs(
                options.decoder.determinize_lattice, tables, options.word_symbol_table, stack
            )
            found = outputs_in_order(
                *(computer, utterances, lambda graph: graph.num_bytes, pauses, outputs.flush)
            )
            for key, loglikes, graph in found:
                with naming(f"utterance {key}"):
                    decoded = self.decoding.decode(self._search_over(graph), key, loglikes)
                if decoded is None:
                    self.counts.failed += 1
                    continue
                outputs.write(key, decoded)
                self.totals.add(decoded)
                self.counts.done += 1
            self.counts.check()

    def _search_over(self, graph: DecodingGraph) -> Search:
        """The Search over `graph`; the latest one is cached for utterances with the same graph."""
        if self._search is None or self._graph is not graph:
            self._graph, self._search = graph, self.decoding.decoder(graph)
        return self._search
