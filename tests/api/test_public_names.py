"""`import nnet3tools`: what it loads, and which names it offers."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import nnet3tools

SOURCE = Path(nnet3tools.__file__).read_text()


def test_importing_loads_nothing_that_takes_time() -> None:
    code = (
        "import sys; before = set(sys.modules); import nnet3tools; "
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['nnet3tools']\n"


def test_every_public_name_is_there() -> None:
    for name in nnet3tools.__all__:
        assert getattr(nnet3tools, name).__doc__, name
    assert set(nnet3tools.__all__) <= set(dir(nnet3tools))


def test_type_checkers_see_the_names_that_programs_get() -> None:
    checked = next(n for n in ast.parse(SOURCE).body if isinstance(n, ast.If))
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(seen) == sorted(nnet3tools.__all__)
    for name, (module, original) in seen.items():
        assert getattr(nnet3tools, name) is getattr(sys.modules[module or ""], original)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Trainerr'"):
        nnet3tools.Trainerr  # noqa: B018
