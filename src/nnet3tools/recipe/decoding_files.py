"""The files of a model directory that decoding needs and a training program knows."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.io import log
from nnet3tools.io.checked import exists, is_file
from nnet3tools.recipe.chain_experiment import ChainExperiment
from nnet3tools.recipe.egs_options import parse_egs_opts
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.plan import Step, WriteText, copy_file
from nnet3tools.recognizer.directory import ModelFacts, directory_files
from nnet3tools.recognizer.parts import MODEL_CONF

_KALDIS_SCALE = 0.1
"""The acoustic scale in steps/nnet3/decode.sh, for models that are not chain models."""


def decoding_steps(e: Experiment) -> list[Step]:
    """Steps that copy the files that decoding with an acoustic model needs."""
    if not e.is_acoustic:
        return []
    if isinstance(e, ChainExperiment):
        factor, scale = e.options.chain.frame_subsampling_factor, 1.0
    else:
        factor = int(parse_egs_opts(e.options.egs.opts).frame_subsampling_factor)
        scale = _KALDIS_SCALE
    facts = ModelFacts(
        factor, *_feature_config(e), cmvn_opts=None, decoding={"acoustic-scale": scale}
    )
    steps: list[Step] = []
    for name, content in directory_files(facts).items():
        path = e.dir / name
        if isinstance(content, Path):
            steps.append(copy_file(content, path))
        elif not (name == MODEL_CONF.name and exists(path)):
            steps.append(WriteText(path, content))
    if e.options.egs.dir and not is_file(e.egs_path / "cmvn_opts"):
        _warn(e, "cmvn_opts", f"there is none in --egs.dir={e.egs_path}: copy the training's there")
    return [*steps, *_cmvn_configs(e), *_lang_files(e)]


def _feature_config(e: Experiment) -> tuple[Path | None, str]:
    """The file of feature options, None if unknown, and "mfcc" or "fbank", the kind of features.

    The file is named by an option or lies beside the data: Kaldi's make_mfcc.sh copies its
    --mfcc-config to conf/mfcc.conf in the data directory.
    """
    named = {"mfcc": e.options.feat.mfcc_config, "fbank": e.options.feat.fbank_config}
    given = [(Path(path), kind) for kind, path in named.items() if path]
    data = Path(e.options.feat_dir) if e.options.feat_dir else None
    if not given and data is not None:
        places = [(data / place / f"{k}.conf", k) for k in named for place in ("", "conf")]
        given = [(path, kind) for path, kind in places if is_file(path)]
    if len(given) == 1:
        return given[0]
    _warn(
        e,
        "mfcc.conf or fbank.conf",
        f"give --feat.mfcc-config or --feat.fbank-config, the --config of the program that made "
        f"the features of {data}",
    )
    return None, "mfcc"


def _cmvn_configs(e: Experiment) -> list[Step]:
    """Steps that copy each FILE of --config=FILE in --feat.cmvn-opts to the directory `e.dir`."""
    words = (word.partition("=") for word in e.options.feat.cmvn_opts.split())
    paths = [Path(value) for name, _, value in words if name == "--config"]
    return [copy_file(path, e.dir / path.name) for path in paths if is_file(path)]


def _lang_files(e: Experiment) -> list[Step]:
    """Steps that copy the files of the --lang folder to lang/ of the experiment."""
    if not (given := getattr(e.am or e.options, "lang", "")):
        return []
    lang = Path(given)
    files = sorted(path for path in lang.rglob("*") if is_file(path))
    if not files:
        _warn(e, "lang/", f"there are no files in --lang={lang}")
    return [copy_file(path, e.dir / "lang" / path.relative_to(lang)) for path in files]


def _warn(e: Experiment, name: str, remedy: str) -> None:
    log.warning(f"{e.dir} will lack {name} for decoding: {remedy}")
