"""What all tests share: the --slow switch, and fixed seeds before each test."""

import os
import signal
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")

# NumPy, the reference, unless a test asks for compiled kernels: tests see thousands of formulas
# once each. The reference cases of Kaldi run with the programs' own default.
os.environ.setdefault("NNET3TOOLS_CPU_KERNELS", "numpy")
# Tests of compilation compile. tests/optimizer/test_kept_programs.py has programs from the cache.
os.environ.setdefault("NNET3TOOLS_NO_PROGRAM_CACHE", "1")

# A shell starts background jobs with SIGINT ignored, which programs that tests interrupt inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine examples take as long as they take. The same ones each time: whether a change
# lands must not hang on chance. With --slow they are drawn anew.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("searching", settings.get_profile("patient"), derandomize=False)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--slow"):
        settings.load_profile("searching")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if item.get_closest_marker("slow"):  # keywords have the names of folders, too
            item.add_marker(skip)


_TESTS = str(Path(__file__).parent)
_generators: dict[str, list[np.random.BitGenerator]] = {}
"""What modules of tests draw from, by module."""


def _begin_again() -> None:
    from nnet3tools import draws

    draws.seed(0)
    for name in sys.modules.keys() - _generators.keys():
        module = sys.modules[name]
        of_tests = str(getattr(module, "__file__", "")).startswith(_TESTS)
        values = vars(module).values() if of_tests else ()
        found = (value for value in values if isinstance(value, np.random.Generator))
        _generators[name] = [generator.bit_generator for generator in found]
    beginning = np.random.default_rng(0).bit_generator.state
    for bits in chain.from_iterable(_generators.values()):
        bits.state = beginning


@pytest.fixture(autouse=True)
def _seed() -> None:
    """What a test draws is the same whichever tests ran before it in its process."""
    _begin_again()


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """A variable that a test leaves set would change tests that run after it in its process."""
    before = os.environ.copy()
    yield
    after = os.environ.copy()
    name = "PYTEST_CURRENT_TEST"
    assert {**before, name: ""} == {**after, name: ""}


@pytest.fixture(autouse=True)
def _messages_go_to_standard_error() -> None:
    """Importing nnet3tools.api, which other tests do, sends messages to Python's logging."""
    from nnet3tools.io import log

    log.set_program("")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
    """So is what a fixture draws that several tests share."""
    if fixturedef.scope != "function":
        _begin_again()
    return (yield)


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
