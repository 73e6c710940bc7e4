"""Every program can be started: from bin/, by the dispatcher, by the package's entry points."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nnet3tools.cli.programs import PROGRAMS, entry_point_of, main_of

ROOT = Path(__file__).parents[2]


def test_entry_points_are_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=given.update))
    runpy.run_path(str(ROOT / "setup.py"), run_name="__main__")
    scripts = {
        "console_scripts": [f"{name} = {':'.join(entry_point_of(name))}" for name in PROGRAMS]
    }
    assert given["entry_points"] == scripts
    assert {"nnet3-train", "nnet3-am-adjust-priors"} < set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_bin_has_the_program(name: str) -> None:
    link = ROOT / "bin" / name
    assert os.readlink(link) == "_run"
    assert os.access(link, os.X_OK)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_names_the_program_and_an_example(name: str) -> None:
    line = main_of(name).command_line
    text = line.help()
    assert line.name == name
    assert f"{name} " in text
    assert "e.g.:" in text
    for option in line.specs:
        assert f"  --{option}" in text.lower()


def dispatch(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "nnet3tools.cli", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_dispatcher_names_the_nearest_program() -> None:
    done = dispatch("nnet3-cpy")
    assert done.returncode == 1
    assert "did you mean nnet3-copy?" in done.stderr
    assert dispatch().returncode == 1


def test_help_does_not_load_what_it_does_not_need() -> None:
    code = (
        "import sys; from nnet3tools.cli.options import program, NoOptions\n"
        "program('x', 'u', NoOptions, num_args=0)(lambda o, a: 0)(['--help'])\n"
        "assert not {'cupy', 'pyparsing', 'nnet3tools.nnet'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
