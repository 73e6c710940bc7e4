"""Loading of a recognizer from a model directory and the folder of a decoding graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nnet3tools.decoding.endpoint import EndpointOptions
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.utterance import UtteranceDecoder
from nnet3tools.decoding.word_times import Lexicon
from nnet3tools.errors import DataError, naming
from nnet3tools.executor.simple_network import SimpleNetwork
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.fast_dataclasses import replace
from nnet3tools.features.sound_features import SoundFeatures
from nnet3tools.fst.files import load_fst
from nnet3tools.io import log
from nnet3tools.io.checked import is_file
from nnet3tools.io.files import number_in, read_text_lines
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.number_text import parse_counts
from nnet3tools.recognizer.directory_reader import ModelDirectory, ReadOptions
from nnet3tools.recognizer.models import read_acoustic_model
from nnet3tools.recognizer.network import AcousticNetwork
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.parts import GLOBAL_STATS, MODEL_CONF
from nnet3tools.recognizer.recognizer import Recognizer

_FRAMES_PER_CHUNK, _STREAM_FRAMES_PER_CHUNK = 150, 21


def load_recognizer(
    options: RecognizerOptions, model_dir: str, graph: str | None, read_options: ReadOptions
) -> Recognizer:
    """The recognizer of a model directory and a graph (None: the graph of the directory).

    `read_options` is that of ModelDirectory: it parses words to options. DataError for a file that
    is missing, malformed, or does not fit the other files.
    """
    return recognizer_of(ModelDirectory(model_dir, graph, options, read_options))


def recognizer_of(d: ModelDirectory) -> Recognizer:
    """Load the recognizer of a model directory; DataError if files are missing or do not fit."""
    d.check()
    assert d.model is not None
    assert d.graph is not None
    assert d.feature_options is not None
    assert d.normalization is not None
    model, nnet, priors = read_acoustic_model(str(d.model))
    if any(nnet.node_names[node] == "ivector" for node in nnet.input_nodes()):
        raise DataError(
            f"{d.path} needs i-vectors (the network has an input 'ivector'): there is no extractor "
            "of them here yet"
        )
    scale = _acoustic_scale(d, model)
    with naming(str(d.features)):
        frame = d.feature_options.frame
        frame = replace(
            frame,
            allow_downsample=frame.allow_downsample or d.options.allow_downsample,
            allow_upsample=frame.allow_upsample or d.options.allow_upsample,
        )
        features = SoundFeatures(replace(d.feature_options, frame=frame))
    words = SymbolTable.load(str(d.words))
    chunk = d.options.frames_per_chunk
    simple = SimpleComputationOptions(
        frame_subsampling_factor=d.frame_subsampling_factor,
        frames_per_chunk=chunk or _FRAMES_PER_CHUNK,
        acoustic_scale=scale,
    )
    with naming(str(d.path)):
        _check_normalization(d)
        normalization = d.normalization.loaded(features.dim)
        if (input_dim := SimpleNetwork(nnet).input_dim) != features.dim:
            raise DataError(
                f"the network expects {input_dim} features, those of {d.features} have dimension "
                f"{features.dim}"
            )
    return Recognizer(
        features,
        normalization,
        AcousticNetwork(nnet, priors, simple, chunk or _STREAM_FRAMES_PER_CHUNK),
        UtteranceDecoder(model, d.options.decoder, scale, True),
        _load_graph(d.graph, words, model, d.options.lm_scale),
        model.transitions(),
        words,
        _load_lexicon(d.lexicon, d.silence),
        d.frame_subsampling_factor * features.frame_seconds,
        _endpoint(d.options.endpoint, d.silence),
    )


def _acoustic_scale(d: ModelDirectory, model: TransitionModel) -> float:
    """The scale of acoustic log-likelihoods; 1.0 if none is given and the model is a chain model.

    DataError if none is given for another model.
    """
    if (scale := d.options.acoustic_scale) is not None:
        return scale
    if model.topology.is_hmm:
        raise DataError(
            f"{MODEL_CONF.absent(d.path / MODEL_CONF.name, d.path)} (Kaldi's steps/nnet3/decode.sh "
            "has 0.1): this is not a chain model, for which the scale is 1.0"
        )
    return 1.0


def _check_normalization(d: ModelDirectory) -> None:
    """Raise DataError if streams are wanted, but the features are normalized by utterance."""
    assert d.normalization is not None
    if d.normalization.kind == "utterance" and d.options.stream:
        needed = GLOBAL_STATS.absent(d.path / GLOBAL_STATS.name, d.path).removeprefix("expected ")
        raise DataError(
            "by cmvn_opts and without online_cmvn, means of speakers or utterances were taken out "
            "of the training features, which a stream does not know: give --cmvn=online, which "
            f"needs {needed}"
        )


def _load_graph(
    path: Path, words: SymbolTable, model: TransitionModel, scale: float
) -> DecodingGraph:
    """The decoding graph, with all costs multiplied by the language model's scale `scale`.

    DataError if the graph was made for a model with other pdfs, or for other words.
    """
    fst = load_fst(str(path))
    num_pdfs = path.with_name("num_pdfs")
    if is_file(num_pdfs) and (found := number_in(str(num_pdfs))) != model.num_pdfs:
        raise DataError(
            f"{num_pdfs}: the graph was made for a model with {found} pdfs, this one has "
            f"{model.num_pdfs}"
        )
    last = int(fst.olabels.max(initial=0))
    if last > max(words.symbols, default=0):
        raise DataError(f"{path} has word {last}, which is not in {words.name}")
    if scale != 1.0:
        factor = np.float32(scale)
        fst = replace(fst, weights=fst.weights * factor, finals=fst.finals * factor)
    return DecodingGraph.of(fst, model, str(path))


def _endpoint(options: EndpointOptions, silence: Path | None) -> EndpointOptions:
    """Endpoint options; if they name no silence phones, these come from the file `silence`."""
    if options.silence_phones or silence is None:
        return options
    phones = ":".join(map(str, sorted(_read_silence_phones(silence))))
    return replace(options, silence_phones=phones)


def _load_lexicon(lexicon: Path | None, silence: Path | None) -> Lexicon | None:
    """The lexicon read from align_lexicon.int and silence.csl; None if a path is None."""
    if lexicon is None or silence is None:
        log.warning("without align_lexicon.int and silence.csl the times of words are approximate")
        return None
    pronunciations: dict[int, list[tuple[int, ...]]] = {}
    for number, line in enumerate(read_text_lines(str(lexicon)), start=1):
        numbers = parse_counts(line.split())
        if numbers is None or len(numbers) < 3:
            raise DataError(f"{lexicon}:{number}: expected numbers of a word and its phones")
        pronunciations.setdefault(numbers[0], []).append(tuple(numbers[2:]))
    return Lexicon(pronunciations, _read_silence_phones(silence))


def _read_silence_phones(path: Path) -> frozenset[int]:
    """The silence phones in a file with one line such as 1:2:3; DataError if it is malformed."""
    lines = read_text_lines(str(path))
    phones = parse_counts(lines[0].split(":")) if len(lines) == 1 else None
    if phones is None:
        raise DataError(f"{path}: expected one line of silence phones' numbers, as 1:2:3")
    return frozenset(phones)
