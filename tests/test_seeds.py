"""docs/seeds.md, from the founding documents' terms to ours: every name in it exists."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from support.seed_statements import SEEDS, VERDICTS, statements

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "seeds.md").read_text()
PROSE = re.split(r"```python\n|```\n", TEXT)[::2]
TERMS = TEXT[: TEXT.index("## How to add")]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TERMS.replace(" | |", " |  |").splitlines()
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


STATEMENTS = statements()


def test_statements_are_numbered_and_in_order() -> None:
    assert len(STATEMENTS) >= 343
    for document in range(1, 6):
        rows = [s for s in STATEMENTS if s.document == document]
        assert [s.number for s in rows] == list(range(1, len(rows) + 1))
        assert [s.line for s in rows] == sorted(s.line for s in rows)


def test_every_statement_has_a_verdict_and_a_place() -> None:
    for statement in STATEMENTS:
        assert statement.verdict in VERDICTS, statement
        assert re.search(r"`[\w.]+\.[\w.]+`|\]\(", statement.place), statement


def test_a_difference_is_explained() -> None:
    for statement in STATEMENTS:
        if statement.verdict != "holds":
            words = re.sub(r"`[^`]*`", "", statement.place)
            assert len(re.findall(r"\w+", words)) >= 2 or "](" in words, statement


@pytest.mark.skipif(not SEEDS.exists(), reason="the documents are not beside the checkout")
def test_every_statement_is_in_its_line() -> None:
    documents = [path.read_text().splitlines() for path in sorted(SEEDS.glob("*.txt"))]
    for statement in STATEMENTS:
        assert documents[statement.document - 1][statement.line - 1].strip(), statement
