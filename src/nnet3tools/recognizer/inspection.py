"""What a model directory has and lacks, as lines of text."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.errors import UserError
from nnet3tools.features.sound_options import FbankOptions, MfccOptions
from nnet3tools.graph.context import compute_simple_nnet_context
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.recognizer.directory_reader import ModelDirectory, ReadOptions, read_directory
from nnet3tools.recognizer.loading import load_recognizer
from nnet3tools.recognizer.models import read_acoustic_model
from nnet3tools.recognizer.options import RecognizerOptions


def inspect_directory(
    folder: str, graph: str | None, options: RecognizerOptions, read_options: ReadOptions
) -> tuple[list[str], list[str]]:
    """Lines about the files of a model directory, and the reasons why it cannot decode, if any.

    The reasons are those of `load_recognizer`. DataError for a folder that does not exist.
    """
    directory = read_directory(folder, graph, options, read_options)
    problems = list(directory.missing)
    if not problems:
        try:
            load_recognizer(options, folder, graph, read_options)
        except UserError as error:
            problems = [str(error)]
    return _lines(directory, options), problems


def _lines(d: ModelDirectory, options: RecognizerOptions) -> list[str]:
    cmvn, factor = d.cmvn, d.frame_subsampling_factor
    described = {
        "model": _model_text(d.model),
        "frame-subsampling-factor": "unknown" if factor is None else str(factor),
        "features": _features_text(d.features, d.feature_options),
        "normalization": "unknown" if cmvn is None else cmvn.kind,
        "graph": _graph_text(d),
        "words": _words_text(d.words),
        "word-times": _times_text(d),
        "scales": f"acoustic {_scale_text(d)}, graph {options.lm_scale:g}",
        "beams": f"{options.decoder.beam:g}, lattice {options.decoder.lattice_beam:g}",
        "for-other-graphs": _graph_sources_text(d.path),
        "option-files": ", ".join(map(str, d.option_files)) or "none",
    }
    if cmvn is not None and cmvn.stats is not None:
        described["normalization"] += f", from {cmvn.stats}"
    elif cmvn is not None and cmvn.kind == "utterance":
        described["normalization"] += " (streams need --cmvn=online and global_cmvn.stats)"
    return [f"{name}: {text}" for name, text in described.items()]


def _model_text(path: Path | None) -> str:
    if path is None:
        return "missing"
    try:
        model, nnet, _ = read_acoustic_model(str(path))
    except UserError as error:
        return str(error)
    text = f"{path}, {'HMM' if model.topology.is_hmm else 'chain'} model, {model.num_pdfs} pdfs"
    for node in nnet.input_nodes():
        text += f", {nnet.node_names[node]} of dimension {nnet.dim(node)}"
    if nnet.is_simple():
        context = compute_simple_nnet_context(nnet)
        text += f", context {context.left} left, {context.right} right"
    return text


def _features_text(path: Path | None, options: MfccOptions | FbankOptions | None) -> str:
    if path is None or options is None:
        return "unknown"
    if isinstance(options, MfccOptions):
        kind, dim = "MFCC", options.num_ceps
    else:
        kind, dim = "filter banks", options.mel.num_mel_bins + options.use_energy
    frame = options.frame
    rate = f"{frame.sample_frequency:g} Hz, a frame every {frame.frame_shift:g} ms"
    return f"{kind} of dimension {dim} by {path}, {rate}"


def _graph_text(d: ModelDirectory) -> str:
    """The graph, and which of the files is missing that tell whether it is of this model."""
    if d.graph is None:
        return "missing"
    absent = [x for x in ("num_pdfs", "phones.txt") if not d.graph.with_name(x).is_file()]
    unchecked = f", not checked against the model: {' and '.join(absent)} missing" if absent else ""
    return f"{d.graph}, {d.graph.stat().st_size} bytes{unchecked}"


def _words_text(path: Path | None) -> str:
    if path is None:
        return "missing"
    try:
        return f"{path}, {len(SymbolTable.load(str(path)).numbers)} symbols"
    except UserError as error:
        return str(error)


def _times_text(d: ModelDirectory) -> str:
    if d.lexicon is None or d.silence is None:
        return "approximate, without phones/align_lexicon.int and phones/silence.csl"
    return f"by {d.lexicon}"


def _graph_sources_text(folder: Path) -> str:
    """Which of the files there are of which nnet3-make-graph makes other graphs."""
    found = {"tree": (folder / "tree").is_file(), "lang/": (folder / "lang").is_dir()}
    return ", ".join(name if there else f"{name} is missing" for name, there in found.items())


def _scale_text(d: ModelDirectory) -> str:
    return "1 if this is a chain model" if d.acoustic_scale is None else f"{d.acoustic_scale:g}"
