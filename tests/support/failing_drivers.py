"""Trainings whose system calls fail at random, repeated until done, beside undisturbed ones."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support import fake_slurm, tiny_training
from support.failing_calls import FailingCalls, counted
from support.spoken_words import write_manifest, write_recordings
from support.tiny_acoustic_training import CHUNKS, COMMON, RECURRENT, make_ali
from support.tiny_chain_training import OPTIONS as CHAIN_OPTIONS
from support.tiny_chain_training import make_alignments, make_graphs
from support.tiny_chain_training import make_dir as make_chain_dir

_MOST_STARTS = 60
_ERROR = re.compile(r"^ERROR \(", re.M)
_TEMPORARY = re.compile(r"\.nnet3tools-.*\.tmp|\..*\.new")


@dataclass(frozen=True)
class TinyDriver:
    """A training: its command line, and what makes its inputs in the working directory."""

    make: Callable[[], object]
    words: tuple[str, ...]
    slurm: bool = False
    module: str = "nnet3tools.cli"
    compared: tuple[str, ...] = ()
    """Files that are compared; (): all but logs."""

    def results(self, folder: Path) -> dict[str, bytes]:
        """The files of a training, by name."""
        if not self.compared:
            return tiny_training.contents(folder / "exp")
        there = (name for name in self.compared if (folder / "exp" / name).exists())
        return {name: (folder / "exp" / name).read_bytes() for name in there}


def _frames() -> None:
    tiny_training.make_data(Path())
    tiny_training.make_dir(Path("exp"))


def _acoustic() -> None:
    _frames()
    make_ali()


def _recurrent() -> None:
    tiny_training.make_data(Path())
    make_ali()
    folder = tiny_training.make_dir(Path("exp"), RECURRENT)
    (folder / "configs" / "vars").write_text("model_left_context=0\nmodel_right_context=0\n")


def _chain() -> None:
    tiny_training.make_data(Path())
    make_alignments()
    make_chain_dir(dim=4)


def _chain_e2e() -> None:
    tiny_training.make_data(Path())
    make_chain_dir(make_graphs())


def _recordings() -> None:
    write_manifest(Path("list.tsv"), write_recordings(Path()))


_ONE = ("--dir=exp", "--num-jobs=1")
_FRAMES = ("nnet3-train-raw-dnn", *tiny_training.OPTIONS, *_ONE)
_CHAIN = (
    *("nnet3-train-chain", *CHAIN_OPTIONS, *_ONE, "--egs.chunk-width=12,9"),
    *("--trainer.frames-per-iter=200", "--egs.opts=--num-utts-subset 4 --online-cmvn true"),
)
DRIVERS = {
    "frames": TinyDriver(_frames, _FRAMES),
    "acoustic": TinyDriver(
        _acoustic,
        (
            *("nnet3-train-dnn", *COMMON, *_ONE, "--egs.frames-per-eg=2", "--ali-dir=ali"),
            "--trainer.num-jobs-compute-prior=2",
        ),
    ),
    "recurrent": TinyDriver(
        _recurrent,
        ("nnet3-train-rnn", *CHUNKS, *_ONE, "--ali-dir=ali", "--trainer.num-jobs-compute-prior=1"),
    ),
    "chain": TinyDriver(_chain, _CHAIN),
    "chain-e2e": TinyDriver(
        _chain_e2e,
        (
            *("nnet3-train-chain-e2e", *CHAIN_OPTIONS, *_ONE, "--trainer.frames-per-iter=300"),
            "--egs.opts=--num-utts-subset 4 --nj 2",
        ),
    ),
    "recognizer": TinyDriver(
        _recordings,
        ("list.tsv", "none", "exp"),
        module="support.small_recognizer",
        compared=(
            *("final.mdl", "model.conf", "graph/HCLG.fst", "global_cmvn.stats", "work/results"),
            *("mfcc.conf", "cmvn_opts", "work/chain/final.mdl", "work/lang/L.fst"),
        ),
    ),
    "frames-slurm": TinyDriver(_frames, (*_FRAMES, "--executor=slurm"), slurm=True),
    "chain-slurm": TinyDriver(_chain, (*_CHAIN, "--executor=slurm"), slurm=True),
}


@dataclass
class Disturbed:
    """A training that was repeated until it was done.

    `statuses` are the exit statuses, `faults` what went wrong in a way that is not allowed.
    """

    statuses: list[int] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def _start(driver: TinyDriver, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    program = [sys.executable, "-P", "-m", driver.module, *driver.words]
    tests = str(Path(__file__).parents[1])
    environment = {**environment, "PYTHONPATH": tests}
    with open(folder.parent / "log", "wb+") as log:
        status = subprocess.call(
            program, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=log, stdout=log
        )
        log.seek(0)
        return status, log.read().decode("utf-8", "replace")


def prepare(driver: TinyDriver, folder: Path) -> dict[str, bytes]:
    """Make the inputs in folder/inputs; returns the files of an undisturbed training."""
    import contextlib

    inputs, whole = folder / "inputs", folder / "whole"
    inputs.mkdir(parents=True)
    with contextlib.chdir(inputs):
        driver.make()
    shutil.copytree(inputs, whole)
    status, log = _start(driver, whole, {**os.environ, **_programs(driver, folder / "slurm")})
    assert status == 0, log
    return driver.results(whole)


def _programs(driver: TinyDriver, folder: Path) -> dict[str, str]:
    shutil.rmtree(folder, ignore_errors=True)
    return fake_slurm.install(folder) if driver.slurm else {}


def disturb(
    driver: TinyDriver, folder: Path, whole: dict[str, bytes], seed: int, **how: object
) -> Disturbed:
    """Repeat a training until it is done; `how` is for FailingCalls.environment."""
    found, place = Disturbed(), folder / f"seed.{seed}"
    shutil.copytree(folder / "inputs", place / "training")
    calls = FailingCalls(place / "training", place / "state")
    for turn in range(_MOST_STARTS):
        environment = calls.environment(seed=1000 * seed + turn, **how)  # type: ignore[arg-type]
        environment |= _programs(driver, place / "slurm")
        status, log = _start(driver, place / "training", environment)
        failed = calls.taken()
        found.statuses.append(status)
        found.calls += counted(failed)
        told = f"turn {turn}, status {status}, calls {failed}:\n{log[-3000:]}"
        if "Traceback" in log or status not in (0, 255):
            found.faults.append(f"traceback or status: {told}")
        if len(_ERROR.findall(log)) != (status != 0):
            found.faults.append(f"not one ERROR line: {told}")
        now = driver.results(place / "training")
        if differ := [name for name, data in now.items() if whole.get(name, data) != data]:
            found.faults.append(f"{differ} differ: {told}")
        if status == 0:
            removed = any(call.name == "unlink" for call in failed)
            more = {name for name in now.keys() - whole.keys() if not _is_allowed(name, removed)}
            if more or whole.keys() - now.keys():
                found.faults.append(f"{more} more, {whole.keys() - now.keys()} lost: {told}")
            break
    if not found.faults:
        shutil.rmtree(place)
    return found


def _is_allowed(name: str, removal_failed: bool) -> bool:
    """Whether a file may be left over: temporary ones whose removal failed."""
    return removal_failed and _TEMPORARY.fullmatch(os.path.basename(name)) is not None
