"""Model directories: reading, and writing of what is read.

`read_directory` knows Kaldi's exp/chain/tdnn, the directory that prepare_online_decoding.sh makes,
and Vosk's layout; `write_directory` writes the files that `read_directory` reads.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.recognizer import parts
from nnet3tools.recognizer.directory_reader import (
    CmvnSettings,
    DirectoryReader,
    ModelDirectory,
    ReadOptions,
    option_files,
)
from nnet3tools.recognizer.options import RecognizerOptions

__all__ = [
    "CmvnSettings",
    "ModelDirectory",
    "ModelFacts",
    "ReadOptions",
    "directory_files",
    "is_graph",
    "option_files",
    "read_directory",
    "write_directory",
]

NO_CMVN = "--norm-means=false --norm-vars=false"
"""cmvn_opts of features that are not normalized."""


def is_graph(argument: str) -> bool:
    """Whether a command-line argument is a decoding graph, not sound.

    Graphs are folders, files whose names end in .fst, and files that begin as OpenFst's.
    """
    path = Path(argument)
    if path.is_dir() or path.suffix == ".fst":
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\xd6\xfd\xb2\x7e"


def read_directory(
    folder: str, graph: str | None, options: RecognizerOptions, read_options: ReadOptions
) -> ModelDirectory:
    """The description of a model directory; files that are missing are among its values.

    `graph` is an FST or a folder with HCLG.fst, in place of the directory's. `options` are those
    of the directory's option files and of the user. DataError for a folder that does not exist, for
    a malformed file, and for features that are not supported.
    """
    if not Path(folder).is_dir():
        raise DataError(f"expected a model directory, found no folder {folder}")
    return DirectoryReader(Path(folder), graph, options, read_options).result()


@dataclass(frozen=True)
class ModelFacts:
    """What decoding must know about a trained model besides final.mdl and the graph."""

    frame_subsampling_factor: int
    features: Path | None = None
    """The mfcc.conf or fbank.conf of the training features; None if it is not known."""
    feature_kind: str = "mfcc"
    cmvn_opts: str | None = NO_CMVN
    """The contents of cmvn_opts; None if they are not known."""
    global_cmvn_stats: Path | None = None
    """The statistics, if apply-cmvn-online with `cmvn_opts` normalized the features."""
    decoding: Mapping[str, object] = field(default_factory=dict)
    """Options of nnet3-decode for model.conf, such as {"acoustic-scale": 1.0, "lm-scale": 0.6}."""


def directory_files(facts: ModelFacts) -> dict[str, str | Path]:
    """The files of a model directory that `facts` determine: text, or the file to copy, by name."""
    files: dict[str, str | Path] = {
        parts.SUBSAMPLING.name: str(facts.frame_subsampling_factor),  # as Kaldi, without newline
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
    """Write the files of a model directory that `facts` determine, all but model and graph.

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
            path.write_text(content)
        elif not (path.exists() and content.samefile(path)):
            shutil.copyfile(content, path)
