"""Report on a model directory, as lines of text: the files it has and the files it lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nnet3tools.errors import UserError
from nnet3tools.features.sound_options import MfccOptions
from nnet3tools.graph.context import compute_simple_nnet_context
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.recognizer.directory_reader import ModelDirectory, ReadOptions
from nnet3tools.recognizer.loading import recognizer_of
from nnet3tools.recognizer.models import read_acoustic_model
from nnet3tools.recognizer.options import RecognizerOptions


def inspect_directory(
    folder: str, graph: str | None, options: RecognizerOptions, read_options: ReadOptions
) -> tuple[list[str], list[str]]:
    """(lines that describe the files of a model directory, reasons why it cannot decode).

    The reasons are the errors of loading it. DataError for a folder that does not exist. The
    arguments are those of ModelDirectory; `read_options` parses option words.
    """
    directory = ModelDirectory(folder, graph, options, read_options)
    problems = directory.missing
    if not problems:
        try:
            recognizer_of(directory)
        except UserError as error:
            problems = [str(error)]
    return _lines(directory), problems


def _lines(d: ModelDirectory) -> list[str]:
    options, scale = d.options, d.options.acoustic_scale
    sources = {"tree": (d.path / "tree").is_file(), "lang/": (d.path / "lang").is_dir()}
    times = "approximate, without phones/align_lexicon.int and phones/silence.csl"
    described = {
        "model": _about(d.model, _model_text),
        "frame-subsampling-factor": d.frame_subsampling_factor or "unknown",
        "features": _features_text(d),
        "normalization": _normalization_text(d),
        "graph": _about(d.graph, _graph_text),
        "words": _about(d.words, lambda x: f"{len(SymbolTable.load(str(x)).numbers)} symbols"),
        "word-times": times if d.lexicon is None or d.silence is None else f"by {d.lexicon}",
        "scales": f"acoustic {'1 if this is a chain model' if scale is None else f'{scale:g}'}, "
        f"graph {options.lm_scale:g}",
        "beams": f"{options.decoder.beam:g}, lattice {options.decoder.lattice_beam:g}",
        "for-other-graphs": ", ".join(
            name if there else f"{name} is missing" for name, there in sources.items()
        ),
        "option-files": ", ".join(map(str, d.option_files)) or "none",
    }
    return [f"{name}: {text}" for name, text in described.items()]


def _about(path: Path | None, describe: Callable[[Path], str]) -> str:
    """The line "PATH, `describe(path)`", or the error if the file is wrong; "missing" for None."""
    if path is None:
        return "missing"
    try:
        return f"{path}, {describe(path)}"
    except UserError as error:
        return str(error)


def _model_text(path: Path) -> str:
    model, nnet, _ = read_acoustic_model(str(path))
    text = f"{'HMM' if model.topology.is_hmm else 'chain'} model, {model.num_pdfs} pdfs"
    for node in nnet.input_nodes():
        text += f", {nnet.node_names[node]} of dimension {nnet.dim(node)}"
    if nnet.is_simple():
        context = compute_simple_nnet_context(nnet)
        text += f", context {context.left} left, {context.right} right"
    return text


def _features_text(d: ModelDirectory) -> str:
    if (options := d.feature_options) is None:
        return "unknown"
    if isinstance(options, MfccOptions):
        kind, dim = "MFCC", options.num_ceps
    else:
        kind, dim = "filter banks", options.mel.num_mel_bins + options.use_energy
    frame = options.frame
    rate = f"{frame.sample_frequency:g} Hz, a frame every {frame.frame_shift:g} ms"
    return f"{kind} of dimension {dim} by {d.features}, {rate}"


def _normalization_text(d: ModelDirectory) -> str:
    if (found := d.normalization) is None:
        return "unknown"
    if found.kind == "utterance":
        return "utterance (streams need --cmvn=online and global_cmvn.stats)"
    return found.kind if found.stats is None else f"{found.kind}, from {found.stats}"


def _graph_text(path: Path) -> str:
    """The size of a graph, and which files needed to check it against the model are missing."""
    absent = [x for x in ("num_pdfs", "phones.txt") if not path.with_name(x).is_file()]
    unchecked = f", not checked against the model: {' and '.join(absent)} missing" if absent else ""
    return f"{path.stat().st_size} bytes{unchecked}"
