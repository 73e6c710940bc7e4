"""A directory of examples, and the check that it fits an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.recipe.data_dir import DataDir, first_matrix_dim, read_lines
from nnet3tools.recipe.egs_parts import Contexts, ivector_id
from nnet3tools.recipe.objective import ExampleNames


@dataclass(frozen=True)
class EgsDir:
    """The facts about a directory of examples that its info files give."""

    path: Path
    num_archives: int
    frames_per_eg: str
    is_multitask: bool
    egs_per_archive: int
    """The approximate number; 0 if the directory does not say."""


@dataclass(frozen=True)
class ExpectedEgs:
    """The properties that an experiment needs its examples to have; "" for absent directories.

    `frames_option` is the option that gives the number of frames.
    """

    names: ExampleNames
    contexts: Contexts
    frames_per_eg: str
    frames_option: str
    feat_dir: str
    online_ivector_dir: str


def open_egs_dir(path: Path, expected: ExpectedEgs) -> EgsDir:
    """The facts about the examples in a directory; DataError if they are not as expected."""
    info = _Info(path)
    _check_features(info, expected.feat_dir)
    _check_ivectors(info, expected.online_ivector_dir)
    _check_contexts(info, expected.contexts)
    frames = info.text("frames_per_eg")
    if frames != expected.frames_per_eg:
        raise DataError(
            f"{path}: its examples have {frames} labels: --egs.{expected.frames_option} is "
            f"{expected.frames_per_eg}"
        )
    is_multitask = _is_multitask(path, expected.names)
    num_archives, size = info.number("num_archives"), info.number("egs_per_archive", 0)
    return EgsDir(path, num_archives, frames, is_multitask, size)


def _check_features(info: _Info, feat_dir: str) -> None:
    dim = DataDir(Path(feat_dir)).feature_dim() if feat_dir else 0
    if dim and dim != (found := info.number("feat_dim")):
        raise DataError(
            f"{info.path}: its features have dimension {found}, those of --feat-dir={feat_dir} "
            f"{dim}"
        )


def _check_contexts(info: _Info, wanted: Contexts) -> None:
    for side, need in (("left", wanted.left), ("right", wanted.right)):
        if (found := info.number(f"{side}_context")) < need:
            raise DataError(
                f"{info.path}: its {side} context is {found}: the network needs at least {need}"
            )
    for name, need in (
        ("left_context_initial", wanted.left_initial),
        ("right_context_final", wanted.right_final),
    ):
        if (found := info.number(name, -1)) != need:
            raise DataError(f"{info.path}: its {name} is {found}: expected {need}")


def _check_ivectors(info: _Info, where: str) -> None:
    dim = first_matrix_dim(Path(where) / "ivector_online.scp") if where else 0
    if (found := info.number("ivector_dim", 0)) != dim:
        raise DataError(f"{info.path}: its iVectors have dimension {found}: expected {dim}")
    theirs, ours = info.text("final.ie.id", ""), ivector_id(Path(where)) if where else ""
    if theirs and ours and theirs != ours:
        raise DataError(
            f"{info.path}: its iVectors are of extractor {theirs}, those of {where} of {ours}"
        )


def _is_multitask(path: Path, names: ExampleNames) -> bool:
    script, egs = path / "valid_diagnostic.scp", path / names.subset("valid_diagnostic")
    if script.exists() and egs.exists() and not (path / f"{names.files}.scp").exists():
        raise DataError(f"{path}: expected one of {egs.name} and {script.name}, found both")
    return script.exists() and not egs.exists()


@dataclass(frozen=True)
class _Info:
    """Numbers and words in the info files of a directory of examples."""

    path: Path

    def text(self, name: str, default: str | None = None) -> str:
        """The first line of an info file; DataError if it is missing without a default."""
        file = self.path / "info" / name
        if not file.is_file():
            if default is None:
                raise DataError(f"{self.path} holds no examples: there is no file '{file}'")
            return default
        return next(iter(read_lines(file)), "").strip()

    def number(self, name: str, default: int | None = None) -> int:
        """The number in an info file; DataError if it is missing without a default."""
        text = self.text(name, None if default is None else str(default))
        if not text.lstrip("-").isdecimal():
            raise DataError(f"{self.path / 'info' / name}: expected a number, found '{text[:40]}'")
        return int(text)
