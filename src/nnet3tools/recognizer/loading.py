"""Loading of a recognizer from a model directory and the folder of a decoding graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.utterance import UtteranceDecoder
from nnet3tools.decoding.word_times import Lexicon
from nnet3tools.errors import DataError, naming
from nnet3tools.executor.looped_computer import LoopedComputer
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.executor.utterance_computer import UtteranceComputer, computer_together
from nnet3tools.features.sound_features import SoundFeatures
from nnet3tools.features.sound_options import FbankOptions, MfccOptions
from nnet3tools.fst.files import load_fst
from nnet3tools.io.files import read_text_lines
from nnet3tools.io.holders import DOUBLE_MATRIX
from nnet3tools.io.table_reader import read_object
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.recognizer.models import read_acoustic_model
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.recognizer import Normalization, Recognizer

ReadOptions: TypeAlias = "Callable[[str, type], Any]"
"""Reads a file of options, such as mfcc.conf, into an instance of a dataclass of options."""

_FRAMES_PER_CHUNK, _STREAM_FRAMES_PER_CHUNK = 150, 21


def load_recognizer(
    options: RecognizerOptions, model_dir: str, graph_in: str, read_options: ReadOptions
) -> Recognizer:
    """The recognizer of a model directory and a graph file.

    DataError for a file that is missing, malformed, or does not fit the others.
    """
    folder, graph_folder = Path(model_dir), Path(graph_in).parent
    model, nnet, priors = read_acoustic_model(str(folder / options.model))
    features = _load_features(folder, read_options)
    factor = _number_in(folder / "frame_subsampling_factor", 1)
    frames = options.frames_per_chunk
    frames = frames or (_STREAM_FRAMES_PER_CHUNK if options.stream else _FRAMES_PER_CHUNK)
    simple = SimpleComputationOptions(
        frame_subsampling_factor=factor,
        frames_per_chunk=frames,
        acoustic_scale=options.acoustic_scale,
    )
    decoding = UtteranceDecoder(model, options.decoder, options.acoustic_scale, True)
    with naming(str(folder)):
        computer: UtteranceComputer | LoopedComputer
        if options.stream:
            computer = LoopedComputer(nnet, simple, priors)
            computer.warm_up()
        else:
            computer = computer_together(nnet, simple, priors)
        if computer.network.input_dim != features.dim:
            raise DataError(
                f"the network expects {computer.network.input_dim} features, the configured ones "
                f"have dimension {features.dim}"
            )
    return Recognizer(
        features,
        _load_normalization(options, folder),
        computer,
        decoding,
        decoding.decoder(DecodingGraph.of(load_fst(graph_in), model, graph_in)),
        model.transitions(),
        SymbolTable.load(str(graph_folder / "words.txt")),
        _load_lexicon(graph_folder / "phones"),
        factor * features.frame_seconds,
        options.piece_seconds,
    )


def _load_features(folder: Path, read_options: ReadOptions) -> SoundFeatures:
    """The feature computer for the mfcc.conf or fbank.conf of a model directory."""
    kinds: tuple[tuple[str, type], ...] = (("mfcc.conf", MfccOptions), ("fbank.conf", FbankOptions))
    for name, kind in kinds:
        for path in (folder / name, folder / "conf" / name):
            if path.exists():
                return SoundFeatures(read_options(str(path), kind))
    raise DataError(f"expected {folder / 'mfcc.conf'} or fbank.conf to exist")


def _load_normalization(options: RecognizerOptions, folder: Path) -> Normalization:
    kind, stats = options.cmvn, folder / "global_cmvn.stats"
    if kind == "auto":
        kind = "online" if stats.exists() else "none"
    if kind == "online":
        return Normalization(kind, read_object(str(stats), DOUBLE_MATRIX))
    return Normalization(kind)


def _number_in(path: Path, default: int) -> int:
    if not path.exists():
        return default
    lines = read_text_lines(str(path))
    if len(lines) != 1 or not lines[0].strip().isdecimal():
        raise DataError(f"{path}: expected a number")
    return int(lines[0])


def _load_lexicon(folder: Path) -> Lexicon | None:
    """The lexicon in a folder's align_lexicon.int and silence.csl; None if either is missing.

    A line of align_lexicon.int has a word, the word again, and its phones.
    """
    lexicon, silence = folder / "align_lexicon.int", folder / "silence.csl"
    if not (lexicon.exists() and silence.exists()):
        return None
    pronunciations: dict[int, list[tuple[int, ...]]] = {}
    for number, line in enumerate(read_text_lines(str(lexicon)), start=1):
        fields = line.split()
        if len(fields) < 3 or not all(field.isdecimal() for field in fields):
            raise DataError(f"{lexicon}:{number}: expected numbers of a word and its phones")
        pronunciations.setdefault(int(fields[0]), []).append(tuple(map(int, fields[2:])))
    return Lexicon(pronunciations, _read_silence_phones(silence))


def _read_silence_phones(path: Path) -> frozenset[int]:
    """The phones in a file with one line such as 1:2:3; DataError if it is malformed."""
    lines = read_text_lines(str(path))
    fields = lines[0].strip().split(":") if len(lines) == 1 else []
    if not fields or not all(field.isdecimal() for field in fields):
        raise DataError(f"{path}: expected one line of silence phones' numbers, as 1:2:3")
    return frozenset(map(int, fields))
