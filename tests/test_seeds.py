"""docs/seeds.md, from the founding documents' terms to ours: every name in it exists."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "seeds.md").read_text()
PROSE = re.split(r"```python\n|```\n", TEXT)[::2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.replace(" | |", " |  |").splitlines()
    if line.startswith("| ") and not line.startswith("| term")
]
ROOMS = {path.name for path in (ROOT / "src" / "nnet3tools").iterdir() if path.is_dir()}
NAMES = sorted(
    {
        name
        for name in re.findall(r"`([\w.]+)`", "".join(PROSE))
        if "." in name and name.split(".")[0] in ROOMS
    }
)


def attribute(owner: Any, name: str) -> Any:
    """An attribute of a module or class; of those that only instances have, their class."""
    if hasattr(owner, name):
        return getattr(owner, name)
    if inspect.ismodule(owner):
        return importlib.import_module(f"{owner.__name__}.{name}")
    declared = any(name in inspect.get_annotations(cls) for cls in owner.__mro__)
    assert declared or re.search(rf"self\.{name}\b.* = ", inspect.getsource(owner)), name
    return owner


@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists(name: str) -> None:
    found = importlib.import_module("nnet3tools")
    for part in name.split("."):
        found = attribute(found, part)


def test_every_term_has_a_name_of_ours() -> None:
    assert len(ROWS) >= 80
    for term, ours, _ in ROWS:
        names = re.findall(r"`([\w.]+)`", ours)
        assert ours == "none" or (names and set(names) <= set(NAMES)), term


def test_files_that_it_names_exist() -> None:
    paths = re.findall(r"`((?:tests|docs)/[\w./]+)`", TEXT)
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path
