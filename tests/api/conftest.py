"""The interface sends messages to Python's logging; other tests look for lines of programs."""

from pathlib import Path

import pytest

from nnet3tools.io import log


@pytest.fixture(autouse=True)
def _messages_go_to_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log.use_logging()
