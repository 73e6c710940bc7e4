"""Programs called in a folder of their own, with their logs: the fixture `shell` (conftest.py)."""

from pathlib import Path
from typing import Any

import pytest

from nnet3tools.io.holders import MATRIX, Holder
from support.programs import read_table, run, write_table


class Shell:
    """Calls programs in `folder`, the working directory; `log` and `out` are of the last call."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capfd = folder, capfd
        self.log = self.out = ""

    def __call__(self, name: str, *words: object, status: int = 0) -> str:
        """The log of a program, which must end with this status."""
        self._capfd.readouterr()
        found = run(name, *words)
        self.out, self.log = self._capfd.readouterr()
        assert found == status, self.log
        return self.log

    def error(self, name: str, *words: object, status: int = 255) -> str:
        """The one line in which a program that fails says why."""
        log = self(name, *words, status=status)
        errors = [line for line in log.splitlines() if line.startswith("ERROR")]
        assert len(errors) == 1
        assert "Traceback" not in log
        return errors[0]

    def write(self, name: str, holder: Holder, items: dict[str, Any]) -> str:
        """Write a table; its rspecifier."""
        write_table(f"ark:{name}", items, holder)
        return f"ark:{name}"

    def read(self, name: str, holder: Holder = MATRIX) -> dict[str, Any]:
        """The objects of a table."""
        return read_table(f"ark:{name}", holder)
