"""Writing of the files that make a trained model's folder a model directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io.checked import exists
from nnet3tools.io.files import copy_contents, write_text
from nnet3tools.recognizer import parts

NO_CMVN = "--norm-means=false --norm-vars=false"
"""cmvn_opts of features that are not normalized."""


@dataclass(frozen=True)
class ModelFacts:
    """Properties of a trained model that decoding needs, apart from final.mdl and the graph.

    `features` is an mfcc.conf or fbank.conf, `decoding` has options of nnet3-decode by name. None
    means unknown.
    """

    frame_subsampling_factor: int
    features: Path | None = None
    feature_kind: str = "mfcc"
    cmvn_opts: str | None = NO_CMVN
    """The contents of cmvn_opts; None if they are not known."""
    global_cmvn_stats: Path | None = None
    """The statistics, if apply-cmvn-online with `cmvn_opts` normalized the features."""
    decoding: Mapping[str, object] = field(default_factory=dict)
    """Options of nnet3-decode for model.conf, such as {"acoustic-scale": 1.0, "lm-scale": 0.6}."""


def directory_files(facts: ModelFacts) -> dict[str, str | Path]:
    """Files of a model directory by name: for each its text, or the Path of a file to copy."""
    files: dict[str, str | Path] = {
        parts.SUBSAMPLING.name: str(facts.frame_subsampling_factor)  # as Kaldi, without newline
    }
    if facts.cmvn_opts is not None:
        files[parts.CMVN_OPTS.name] = f"{facts.cmvn_opts}\n"
    if facts.decoding:
        lines = (f"--{name}={value}\n" for name, value in facts.decoding.items())
        files[parts.MODEL_CONF.name] = "".join(lines)
    if facts.global_cmvn_stats is not None:
        files[parts.ONLINE_CMVN.name] = ""
        files[parts.GLOBAL_STATS.name] = facts.global_cmvn_stats
    if facts.features is not None:
        files[f"{facts.feature_kind}.conf"] = facts.features
    return files


def write_directory(folder: str | Path, facts: ModelFacts) -> None:
    """Write the files of a model directory that `facts` determine; model and graph are not written.

    Files of online normalization are removed if the features are not normalized online.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    files = directory_files(facts)
    for part in (parts.ONLINE_CMVN, parts.GLOBAL_STATS):
        if part.name not in files:
            (target / part.name).unlink(missing_ok=True)
    for name, content in files.items():
        path = target / name
        if isinstance(content, str):
            write_text(path, content)
        elif not (exists(path) and content.samefile(path)):
            copy_contents(content, path)
