"""A trained model put to use: from sound to words with times, whole or as a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nnet3tools.cli.options import CommandLine
from nnet3tools.cli.recognizer_options import RecognizerOptions
from nnet3tools.cli.tables import read_object
from nnet3tools.cli.utterance_inputs import read_acoustic_model
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.search import Search
from nnet3tools.decoding.utterance import UtteranceDecoder
from nnet3tools.decoding.word_times import Lexicon, SpokenWord, spoken_words
from nnet3tools.errors import DataError, naming
from nnet3tools.executor.decodable_looped import LoopedUtteranceComputer
from nnet3tools.executor.decodable_simple import UtteranceComputer
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.fst.files import load_fst
from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.io import log
from nnet3tools.io.files import read_text_lines
from nnet3tools.io.holders import DOUBLE_MATRIX
from nnet3tools.io.wave import Wave
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.nnet.hmm.transition_model import Transitions
from nnet3tools.training.online_cmvn import online_cmvn
from nnet3tools.training.online_cmvn_options import OnlineCmvnOptions
from nnet3tools.training.sound_features import SoundFeatures
from nnet3tools.training.sound_options import FbankOptions, MfccOptions

__all__ = ["Recognized", "Recognizer", "load_recognizer", "text_of"]

_FRAMES_PER_CHUNK, _STREAM_FRAMES_PER_CHUNK = 150, 21


@dataclass(frozen=True)
class Recognized:
    """Words and their times in seconds; the real-time factor."""

    words: list[tuple[str, float, float, float]]
    """Word, begin, length, confidence."""
    real_time_factor: float


# -- features


@dataclass(frozen=True)
class _Normalization:
    """How features are normalized: not at all, with their mean, or as an online decoder does."""

    kind: str
    overall: np.ndarray | None = None
    options: OnlineCmvnOptions = field(default_factory=OnlineCmvnOptions)

    def whole(self, features: np.ndarray) -> np.ndarray:
        """Of an utterance."""
        if self.kind == "utterance":
            return features - features.mean(axis=0)
        if self.overall is not None:
            return online_cmvn(features, self.overall, None, self.options, [])
        return features

    def stream(self, pieces: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        """Of pieces of an utterance: each frame depends on a window before it at most."""
        history: np.ndarray | None = None
        for piece in pieces:
            known = piece if history is None else np.concatenate([history, piece])
            yield self.whole(known)[-len(piece) :]
            history = known[-self.options.cmn_window :]


# -- recognizing


@dataclass
class Recognizer:
    """Recognizes utterance after utterance."""

    features: SoundFeatures
    normalization: _Normalization
    computer: UtteranceComputer | LoopedUtteranceComputer
    decoding: UtteranceDecoder
    decoder: Search
    transitions: Transitions
    words: SymbolTable
    lexicon: Lexicon | None
    output_seconds: float
    """The time from one output of the network to the next."""
    piece_seconds: float
    latencies: list[float] = field(default_factory=list)
    """How long each piece of sound took, in seconds."""

    def recognize(self, key: str, wave: Wave) -> Recognized | None:
        """The words of an utterance; None, with a warning, if there is no way to an end.

        DataError for sound that cannot be used.
        """
        began = time.perf_counter()
        if len(wave.samples) != 1:
            log.warning(f"{key}: sound with {len(wave.samples)} channels: the first one is decoded")
        samples = wave.samples[0]
        if isinstance(self.computer, LoopedUtteranceComputer):
            self.features.check_rate(wave.rate)
            self._stream(samples, wave.rate)
        else:
            features = self.features.compute(samples, wave.rate)
            if not len(features):
                raise DataError("the sound is shorter than a frame")
            self.decoder.start()
            self.decoder.advance(self.computer.compute(self.normalization.whole(features)))
        decoded = self.decoding.finish(self.decoder, key)
        if decoded is None:
            return None
        lattice = decoded.lattice
        assert isinstance(lattice, CompactLattice)
        spoken = spoken_words(decoded.best, lattice, self.transitions, self.lexicon)
        seconds = time.perf_counter() - began
        return Recognized(list(map(self._shown, spoken)), seconds / max(wave.duration, 1e-3))

    def _shown(self, spoken: SpokenWord) -> tuple[str, float, float, float]:
        word = self.words.symbols.get(spoken.word)
        if word is None:
            raise DataError(f"word {spoken.word} is not in {self.words.name}")
        begin, end = spoken.begin * self.output_seconds, spoken.end * self.output_seconds
        return word, begin, end - begin, spoken.confidence

    def _stream(self, samples: np.ndarray, rate: int) -> None:
        """Search on with each piece of sound."""
        assert isinstance(self.computer, LoopedUtteranceComputer)
        self.decoder.start()
        pieces = self._pieces(samples, max(1, round(rate * self.piece_seconds)))
        features = self.normalization.stream(self.features.stream(pieces))
        for loglikes in self.computer.stream(features):
            self.decoder.advance(loglikes)
        if not self.decoder.num_frames:
            raise DataError("the sound is shorter than a frame")

    def _pieces(self, samples: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """Pieces of sound; the time until the next one is wanted is what a piece took."""
        for begin in range(0, len(samples), size):
            given = time.perf_counter()
            yield samples[begin : begin + size]
            self.latencies.append(time.perf_counter() - given)

    def report(self) -> None:
        """Log how long pieces took."""
        if self.latencies:
            mean, most = np.mean(self.latencies) * 1000, np.max(self.latencies) * 1000
            log.log(
                f"{len(self.latencies)} pieces of {self.piece_seconds:g}s of sound took "
                f"{mean:.1f} ms each, {most:.1f} ms at most"
            )


def text_of(key: str, result: Recognized, form: str) -> str:
    """A result as text, CTM or a line of JSON."""
    if form == "text":
        return " ".join([key, *(word for word, *_ in result.words)]) + "\n"
    if form == "ctm":
        return "".join(
            f"{key} 1 {begin:.2f} {length:.2f} {word} {confidence:.2f}\n"
            for word, begin, length, confidence in result.words
        )
    words = [
        {"word": w, "begin": round(b, 3), "length": round(n, 3), "confidence": round(c, 3)}
        for w, b, n, c in result.words
    ]
    factor = round(result.real_time_factor, 4)
    line = {"utterance": key, "words": words, "real_time_factor": factor}
    return json.dumps(line, ensure_ascii=False) + "\n"


# -- loading


def load_recognizer(options: RecognizerOptions, model_dir: str, graph_in: str) -> Recognizer:
    """What a model directory and a graph make; DataError for what is missing or does not fit."""
    folder, graph_folder = Path(model_dir), Path(graph_in).parent
    model, nnet, priors = read_acoustic_model(str(folder / options.model))
    features = _load_features(folder)
    factor = _number_in(folder / "frame_subsampling_factor", 1)
    frames = options.frames_per_chunk
    frames = frames or (_STREAM_FRAMES_PER_CHUNK if options.stream else _FRAMES_PER_CHUNK)
    simple = SimpleComputationOptions(
        frame_subsampling_factor=factor,
        frames_per_chunk=frames,
        acoustic_scale=options.acoustic_scale,
    )
    computer: Callable = LoopedUtteranceComputer if options.stream else UtteranceComputer
    decoding = UtteranceDecoder(model, options.decoder, options.acoustic_scale, True)
    with naming(str(folder)):
        computed = computer(nnet, simple, priors)
        if computed.network.input_dim != features.dim:
            raise DataError(
                f"the network expects {computed.network.input_dim} features, the configured ones "
                f"have dimension {features.dim}"
            )
    return Recognizer(
        features,
        _load_normalization(options, folder),
        computed,
        decoding,
        decoding.decoder(DecodingGraph.of(load_fst(graph_in), model, graph_in)),
        model.transitions(),
        SymbolTable.load(str(graph_folder / "words.txt")),
        _load_lexicon(graph_folder / "phones"),
        factor * features.frame_seconds,
        options.piece_seconds,
    )


def _load_features(folder: Path) -> SoundFeatures:
    """Features as the directory's config file says."""
    kinds: tuple[tuple[str, type], ...] = (("mfcc.conf", MfccOptions), ("fbank.conf", FbankOptions))
    for name, kind in kinds:
        for path in (folder / name, folder / "conf" / name):
            if path.exists():
                words = [f"--config={path}", "--print-args=false", f"--verbose={log.get_verbose()}"]
                return SoundFeatures(CommandLine(name, "", kind, 0).parse(words)[0])
    raise DataError(f"expected {folder / 'mfcc.conf'} or fbank.conf to exist")


def _load_normalization(options: RecognizerOptions, folder: Path) -> _Normalization:
    kind, stats = options.cmvn, folder / "global_cmvn.stats"
    if kind == "auto":
        kind = "online" if stats.exists() else "none"
    if kind == "online":
        return _Normalization(kind, read_object(str(stats), DOUBLE_MATRIX))
    return _Normalization(kind)


def _number_in(path: Path, default: int) -> int:
    if not path.exists():
        return default
    lines = read_text_lines(str(path))
    if len(lines) != 1 or not lines[0].strip().isdecimal():
        raise DataError(f"{path}: expected a number")
    return int(lines[0])


def _load_lexicon(folder: Path) -> Lexicon | None:
    """align_lexicon.int (word, word, phones) and silence.csl; None if one of them is missing."""
    lexicon, silence = folder / "align_lexicon.int", folder / "silence.csl"
    if not (lexicon.exists() and silence.exists()):
        return None
    pronunciations: dict[int, list[tuple[int, ...]]] = {}
    for number, line in enumerate(read_text_lines(str(lexicon)), start=1):
        fields = line.split()
        if len(fields) < 3 or not all(field.isdecimal() for field in fields):
            raise DataError(f"{lexicon}:{number}: expected numbers of a word and its phones")
        pronunciations.setdefault(int(fields[0]), []).append(tuple(map(int, fields[2:])))
    silent = frozenset(int(p) for p in read_text_lines(str(silence))[0].split(":"))
    return Lexicon(pronunciations, silent)
