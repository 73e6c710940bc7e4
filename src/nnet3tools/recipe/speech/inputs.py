"""The files that a training reads: whether they have changed since its first call."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable

from nnet3tools.errors import DataError
from nnet3tools.recipe.plan import WriteText
from nnet3tools.recipe.speech.setup import WORK

_RECORD = WORK / "inputs.json"


def record_inputs(texts: Iterable[str], sounds: Iterable[str]) -> None:
    """Record the contents of text files, and the sizes and times of change of sound files.

    A text file that does not exist is recorded as such. Sound that is no file, such as a pipe, is
    left out.
    """
    found: dict[str, object] = {name: _digest(name) for name in texts}
    found |= {name: _stamp(name) for name in sounds if os.path.isfile(name)}
    WriteText(_RECORD, json.dumps(found, indent=0, sort_keys=True) + "\n").do()


def check_unchanged(hint: str) -> None:
    """DataError, ending in `hint`, if a recorded file has changed; files may be missing now.

    Sound that is missing has been copied by the first stage.
    """
    for name, before in json.loads(_RECORD.read_text()).items():
        if os.path.isfile(name):
            now = _stamp(name) if isinstance(before, list) else _digest(name)
            if now != before:
                raise DataError(f"'{name}' has changed since this training began: {hint}")


def _digest(name: str) -> str:
    if not os.path.isfile(name):
        return "missing"
    with open(name, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(name: str) -> list[int]:
    status = os.stat(name)
    return [status.st_size, status.st_mtime_ns]
