"""The loaded models of a recognizer: features, network, graph, words."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.decoding.endpoint import EndpointOptions
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.search import Search
from nnet3tools.decoding.traceback import BestPath
from nnet3tools.decoding.utterance import Decoded, UtteranceDecoder
from nnet3tools.decoding.word_times import Lexicon, SpokenWord, spoken_words, word_spans
from nnet3tools.errors import DataError
from nnet3tools.features.sound_features import SoundFeatures
from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.fst.lattice_conversion import expanded
from nnet3tools.fst.shortest_paths import best_paths
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.nnet.hmm.transition_model import Transitions
from nnet3tools.recognizer.batched_streams import BatchedNetwork
from nnet3tools.recognizer.network import AcousticNetwork
from nnet3tools.recognizer.normalization import Normalization
from nnet3tools.recognizer.results import Alternative, Result, Word


@dataclass
class LoadedModels:
    """All models that recognition needs, and how decoded utterances become results."""

    features: SoundFeatures
    normalization: Normalization
    network: AcousticNetwork
    decoding: UtteranceDecoder
    graph: DecodingGraph
    transitions: Transitions
    words: SymbolTable
    lexicon: Lexicon | None
    output_seconds: float
    """Seconds from one output of the network to the next."""
    endpoint: EndpointOptions
    """When utterances of streams end."""

    @property
    def sample_rate(self) -> float:
        """The sampling rate that the features are made for."""
        return self.features.sample_rate

    def check_rate(self, rate: float) -> None:
        """DataError for a sampling rate that streams cannot have."""
        self.features.check_rate(rate)

    @property
    def batches(self) -> BatchedNetwork | None:
        """What computes the network for all streams; None if each stream computes it alone."""
        return self.network.batches

    def new_search(self) -> Search:
        """A new search over the recognizer's graph."""
        return self.decoding.decoder(self.graph)

    def result_of(self, decoded: Decoded, start: float = 0.0, nbest: int = 0) -> Result:
        """The result for a decoded utterance, which begins `start` seconds after the sound."""
        lattice = decoded.lattice
        assert isinstance(lattice, CompactLattice)
        lattice = lattice.scaled(acoustic_scale=self.decoding.acoustic_scale)
        spoken = spoken_words(decoded.best, lattice, self.transitions, self.lexicon)
        words = tuple(self._word(word, start) for word in spoken)
        alternatives = self._alternatives(lattice, start, nbest) if nbest else ()
        end = start + decoded.num_frames * self.output_seconds
        return Result(words, alternatives, start, end)

    def _alternatives(
        self, lattice: CompactLattice, start: float, nbest: int
    ) -> tuple[Alternative, ...]:
        """The best word sequences of a lattice, the best first, as by lattice-to-nbest."""
        found = []
        for way in best_paths(expanded(lattice), nbest):
            path = BestPath(way.fst.ilabels, way.fst.olabels, way.fst.weights, way.acoustic)
            found.append(Alternative(self.words_of(path, start), -sum(way.total_costs())))
        return tuple(found)

    def words_of(self, path: BestPath, start: float) -> tuple[Word, ...]:
        """The words of a path, which begins `start` seconds after the sound; confidences are 1."""
        words = path.transcript.tolist()
        spans = word_spans(path, self.transitions, self.lexicon)
        spoken = [SpokenWord(word, *span, 1.0) for word, span in zip(words, spans, strict=True)]
        return tuple(self._word(word, start) for word in spoken)

    def word_text(self, word: int) -> str:
        """The text of a word; DataError if it is not in the symbol table."""
        text = self.words.symbols.get(word)
        if text is None:
            raise DataError(f"word {word} is not in {self.words.name}")
        return text

    def _word(self, spoken: SpokenWord, start: float) -> Word:
        begin, end = (start + at * self.output_seconds for at in (spoken.begin, spoken.end))
        return Word(self.word_text(spoken.word), begin, end, spoken.confidence)
