"""What all tests share: the --slow switch, and a fixed seed before each test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")

# NumPy, the reference, unless a test asks for compiled kernels: tests see thousands of formulas
# once each. The reference cases of Kaldi run with the programs' own default.
os.environ.setdefault("NNET3TOOLS_CPU_KERNELS", "numpy")

# On a busy machine examples take as long as they take.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if item.get_closest_marker("slow"):  # keywords have the names of folders, too
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _seed() -> None:
    from nnet3tools import tensor

    tensor.random.seed(0)


@pytest.fixture
def unpoisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undefined memory is left alone, for tests that count launches: filling it is one."""
    monkeypatch.setattr("nnet3tools.tensor.arrays.POISON", False)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Programs called in an empty folder (support/shell.py)."""
    from support.shell import Shell

    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capfd)
