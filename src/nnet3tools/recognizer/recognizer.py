"""The recognizer: a model directory and a decoding graph as one object, from sound to words."""

from __future__ import annotations

import numpy as np

from nnet3tools.decoding.endpoint import EndpointOptions
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.search import Search
from nnet3tools.decoding.traceback import BestPath
from nnet3tools.decoding.utterance import Decoded, UtteranceDecoder
from nnet3tools.decoding.word_times import Lexicon, SpokenWord, spoken_words, word_spans
from nnet3tools.errors import DataError, OptionError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.features.sound_features import SoundFeatures
from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.fst.lattice_conversion import expanded
from nnet3tools.fst.shortest_paths import best_paths
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.nnet.hmm.transition_model import Transitions
from nnet3tools.recognizer.network import AcousticNetwork
from nnet3tools.recognizer.normalization import Normalization
from nnet3tools.recognizer.results import Alternative, Result, Word
from nnet3tools.recognizer.stream import Stream


@dataclass(eq=False, repr=False)
class Recognizer:
    """Turns sound into words with the models of a model directory and a decoding graph.

    Its streams and searches may run in several threads. `output_seconds` is the time between
    outputs of the network. If `lexicon` is None, the times of words are approximate.
    """

    features: SoundFeatures
    normalization: Normalization
    network: AcousticNetwork
    decoding: UtteranceDecoder
    graph: DecodingGraph
    transitions: Transitions
    words: SymbolTable
    lexicon: Lexicon | None
    output_seconds: float
    endpoint: EndpointOptions
    """When utterances of streams end."""

    @property
    def sample_rate(self) -> float:
        """Samples per second of the sound that the model was trained on."""
        return self.features.sample_rate

    def new_search(self) -> Search:
        """A new search over the recognizer's graph."""
        return self.decoding.decoder(self.graph)

    def stream(
        self,
        sample_rate: float | None = None,
        *,
        endpointing: bool = True,
        nbest: int = 0,
        sample_format: str = "int16",
        name: str = "stream",
    ) -> Stream:
        """A new live stream: `accept` sound, then ask for `partial`, `result` and `final`.

        `sample_rate` in Hz is by default the model's. With `endpointing`, utterances end by Kaldi's
        endpoint rules; else by `result` and `final` only. `nbest` is the number of alternatives in
        results. `sample_format`, "int16" or "float32", is that of samples given as bytes. `name` is
        used in warnings. One thread at a time may use a stream; streams do not influence each
        other. DataError if the sampling rate does not fit, for a model that needs whole utterances,
        or if endpointing needs silence phones that are not known; OptionError for another format.
        """
        if sample_format not in ("int16", "float32"):
            raise OptionError(f"sample_format must be int16 or float32, not {sample_format}")
        if endpointing and not self.endpoint.silence_phones:
            raise DataError(
                "ends of utterances are found by silence phones: expected phones/silence.csl in "
                "the graph's folder, or --endpoint.silence-phones"
            )
        rate = self.sample_rate if sample_rate is None else sample_rate
        endpoint = self.endpoint if endpointing else None
        return Stream(self, rate, endpoint, nbest, sample_format, name)

    def prepare_for_many_streams(self) -> None:
        """Compile all programs for streams now; compute chunks of several streams as one minibatch.

        DataError if the recognizer cannot be used for streams.
        """
        self.network.batch_streams()
        stream = self.stream()
        stream.accept(np.zeros(int(self.sample_rate), np.int16))
        stream.final()
        if (batches := self.network.batches) is not None:
            batches.num_chunks = batches.num_minibatches = 0

    # -- results

    def result_of(self, decoded: Decoded, start: float = 0.0, nbest: int = 0) -> Result:
        """The result, with `nbest` alternatives, for an utterance that begins at `start` s."""
        lattice = decoded.lattice
        assert isinstance(lattice, CompactLattice)
        lattice = lattice.scaled(acoustic_scale=self.decoding.acoustic_scale)
        spoken = spoken_words(decoded.best, lattice, self.transitions, self.lexicon)
        words = tuple(self._word(word, start) for word in spoken)
        alternatives = []
        for way in best_paths(expanded(lattice), nbest) if nbest else ():
            path = BestPath(way.fst.ilabels, way.fst.olabels, way.fst.weights, way.acoustic)
            alternatives.append(Alternative(self.words_of(path, start), -sum(way.total_costs())))
        end = start + decoded.num_frames * self.output_seconds
        return Result(words, tuple(alternatives), start, end)

    def words_of(self, path: BestPath, start: float) -> tuple[Word, ...]:
        """The words of a path that begins `start` seconds into the sound, with confidences of 1."""
        words = path.transcript.tolist()
        spans = word_spans(path, self.transitions, self.lexicon)
        spoken = [SpokenWord(word, *span, 1.0) for word, span in zip(words, spans, strict=True)]
        return tuple(self._word(word, start) for word in spoken)

    def word_text(self, word: int) -> str:
        """The text of the word with number `word`; DataError if the symbol table lacks it."""
        if (text := self.words.symbols.get(word)) is None:
            raise DataError(f"word {word} is not in {self.words.name}")
        return text

    def _word(self, spoken: SpokenWord, start: float) -> Word:
        begin, end = (start + at * self.output_seconds for at in (spoken.begin, spoken.end))
        return Word(self.word_text(spoken.word), begin, end, spoken.confidence)
