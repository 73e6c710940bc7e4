"""The record of an experiment in its directory: its options; and the lock of the directory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from nnet3tools.cli.option_specs import specs_of
from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.io.checked import is_file
from nnet3tools.io.files import MAX_CONFIG, read_file
from nnet3tools.recipe.data_dir import read_lines
from nnet3tools.recipe.experiment import Experiment
from nnet3tools.recipe.options import RunOptions
from nnet3tools.recipe.plan import WriteText

RECORD = "experiment.json"
_FREE = {
    *(spec.name for spec in specs_of(RunOptions)),
    *("egs.cmd", "egs.stage", "lang", "feat.mfcc-config", "feat.fbank-config", "nj"),
}
"""Options that do not change any result."""
_HINT = "expected the same, another --dir, or --stage to say from where on to use the new ones"


def option_values(options: object, free: Collection[str] = _FREE) -> dict[str, Any]:
    """The values of all options by name, except those named in `free`."""
    values: dict[str, Any] = {}
    for spec in specs_of(type(options)):
        value: Any = options
        for name in spec.path:
            value = getattr(value, name)
        if spec.name not in free:
            values[spec.name] = list(value) if isinstance(value, tuple) else value
    return values


def record_of(experiment: Experiment) -> dict[str, Any]:
    """The contents of experiment.json: program, network, and options that change results."""
    config = experiment.dir / "configs" / "final.config"
    network = read_lines(config) if is_file(config) else []
    options = option_values(experiment.options)
    return {"program": experiment.program, "options": options, "network": network}


def check_recorded(path: Path, now: dict[str, Any], hint: str = _HINT) -> None:
    """DataError, ending in `hint`, if the record in file `path` exists and differs from `now`."""
    if not is_file(path):
        return
    try:
        before = json.loads(read_file(path, MAX_CONFIG))
        program, options = before["program"], dict(before["options"])
    except (DataError, ValueError, KeyError, TypeError, RecursionError):
        raise DataError(
            f"{path}: expected the record of an experiment: remove it to go on"
        ) from None
    if program != now["program"]:
        raise DataError(f"{path}: the experiment in this directory is one of {program}: {hint}")
    for name, value in now["options"].items():
        if name in options and options[name] != value:
            shown = name if name.isupper() else f"--{name}"
            raise DataError(f"{path}: {shown} was '{options[name]}', is now '{value}': {hint}")
    if before.get("network") and now["network"] and before["network"] != now["network"]:
        raise DataError(f"{path}: configs/final.config is not the one of this experiment: {hint}")


def write_recorded(path: Path, record: dict[str, Any]) -> None:
    """Write a record of options to a JSON file, which `check_recorded` compares later."""
    WriteText(path, json.dumps(record, indent=1) + "\n").do()


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Scope that locks a training directory; DataError if another driver works in it.

    If Ctrl-C or a signal ends the program, the innermost of several scopes logs one line.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataError(f"{folder}: another training program works in this directory") from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        if not getattr(error, "is_noted", False):
            log.log("Stopped; the same command goes on after the last finished stage")
            error.is_noted = True  # type: ignore[union-attr]
        raise
    finally:
        os.close(descriptor)
