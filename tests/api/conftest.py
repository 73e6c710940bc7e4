"""The interface sends messages to Python's logging; other tests look for lines of programs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nnet3tools.io import log


@pytest.fixture(autouse=True)
def _messages_go_to_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    log.set_program("")
    log.use_logging()
    yield
    log.set_program("")
