"""A directory of examples: its info files, and the check that it fits an experiment."""

from __future__ import annotations

from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.checked import exists, is_file
from nnet3tools.number_text import parse_int
from nnet3tools.recipe.data_dir import first_matrix_dim, read_lines
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.plan import Step, lines_at


def info_steps(
    e: Experiment, num_frames: int, num_archives: int, more: dict[str, object]
) -> list[Step]:
    """Steps that write egs/cmvn_opts and egs/info/NAME for each value; `more`: NAME -> value."""
    egs, contexts, frames_per_eg = e.egs_path, e.contexts(), e.frames_per_eg
    where = e.options.feat.online_ivector_dir
    num_labels = int(frames_per_eg.split(",")[0])
    values: dict[str, object] = {
        "num_frames": num_frames,
        "feat_dim": e.data.feature_dim(),
        "ivector_dim": _ivector_dim(where),
        "num_archives": num_archives,
        "frames_per_eg": frames_per_eg,
        "egs_per_archive": num_frames // (num_labels * num_archives),
        "left_context": contexts.left,
        "right_context": contexts.right,
        "left_context_initial": contexts.left_initial,
        "right_context_final": contexts.right_final,
        **more,
    }
    if name := _ivector_id(where):
        values["final.ie.id"] = name
    steps = [lines_at(egs / "info" / name, [value]) for name, value in values.items()]
    return [*steps, lines_at(egs / "cmvn_opts", [e.options.feat.cmvn_opts])]


@dataclass(frozen=True)
class EgsDir:
    """Properties of a directory of examples, read from its info files."""

    path: Path
    num_archives: int
    is_multitask: bool
    egs_per_archive: int
    """The approximate number; 0 if the directory does not say."""


def open_egs_dir(e: Experiment) -> EgsDir:
    """Read the properties of existing examples; DataError if they do not fit the experiment."""
    path = e.egs_path
    info = _Info(path)
    dim = e.data.feature_dim() if e.options.feat_dir else 0
    if dim and dim != (found := info.number("feat_dim")):
        raise DataError(
            f"{info.path}: its features have dimension {found}, those of "
            f"--feat-dir={e.options.feat_dir} {dim}"
        )
    _check_ivectors(info, e.options.feat.online_ivector_dir)
    _check_contexts(info, e)
    if (frames := info.text("frames_per_eg")) != e.frames_per_eg:
        raise DataError(
            f"{path}: its examples have {frames} labels: "
            f"--egs.{'chunk-width' if e.has_chunks else 'frames-per-eg'} is {e.frames_per_eg}"
        )
    num_archives, size = info.number("num_archives"), info.number("egs_per_archive", 0)
    return EgsDir(path, num_archives, _is_multitask(e), size)


def _check_contexts(info: _Info, e: Experiment) -> None:
    wanted = e.contexts()
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
    dim = _ivector_dim(where)
    if (found := info.number("ivector_dim", 0)) != dim:
        raise DataError(f"{info.path}: its iVectors have dimension {found}: expected {dim}")
    theirs, ours = info.text("final.ie.id", ""), _ivector_id(where)
    if theirs and ours and theirs != ours:
        raise DataError(
            f"{info.path}: its iVectors are of extractor {theirs}, those of {where} of {ours}"
        )


def _ivector_dim(where: str) -> int:
    """The dimension of the iVectors in directory `where`; 0 if `where` is empty."""
    return first_matrix_dim(Path(where) / "ivector_online.scp") if where else 0


def _ivector_id(where: str) -> str:
    """The identifier of the iVector extractor in directory `where`; "" if there is none."""
    path = Path(where) / "final.ie.id"
    return read_lines(path)[0].strip() if where and is_file(path) else ""


def _is_multitask(e: Experiment) -> bool:
    path, names = e.egs_path, e.objective
    script, egs = path / "valid_diagnostic.scp", path / names.subset("valid_diagnostic")
    if exists(script) and exists(egs) and not exists(path / f"{names.files}.scp"):
        raise DataError(f"{path}: expected one of {egs.name} and {script.name}, found both")
    return exists(script) and not exists(egs)


@dataclass(frozen=True)
class _Info:
    """Reads numbers and words in the folder info of a directory of examples."""

    path: Path

    def text(self, name: str, default: str | None = None) -> str:
        """The first line of the file info/`name`, or `default`; DataError if there is neither."""
        file = self.path / "info" / name
        if not is_file(file):
            if default is None:
                raise DataError(f"{self.path} holds no examples: there is no file '{file}'")
            return default
        return next(iter(read_lines(file)), "").strip()

    def number(self, name: str, default: int | None = None) -> int:
        """The number in the file info/`name`, or `default`; DataError if there is neither."""
        text = self.text(name, None if default is None else str(default))
        if (value := parse_int(text)) is None:
            raise DataError(f"{self.path / 'info' / name}: expected a number, found '{text[:40]}'")
        return value
