"""The budget of lines (DESIGN section 1): a change may only lower these numbers.

Lines of .py, .c, .h and .cuh files are counted. If a room falls below its number by more than a
hundredth, lower the number, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".c", ".h", ".cuh"}
BUDGET = {
    "api": 825,
    "chain": 5795,
    "cli": 11861,
    "compiler": 1443,
    "decoding": 4424,
    "discriminative": 1320,
    "executor": 3250,
    "expression": 5850,
    "features": 1159,
    "fst": 4151,
    "grammars": 722,
    "graph": 3131,
    "io": 5922,
    "lang": 2147,
    "nnet": 13443,
    "optimizer": 3530,
    "program": 4003,
    "recipe": 8974,
    "recognizer": 2856,
    "tensor": 17004,
    "training": 5210,
    "xconfig": 2787,
    "tests": 61297,
}


def lines(folder: Path) -> int:
    """The lines of all source files below a folder."""
    files = (p for p in folder.rglob("*") if p.suffix in SUFFIXES and "reference/" not in str(p))
    return sum(path.read_bytes().count(b"\n") for path in files)


@pytest.mark.parametrize("room", BUDGET)
def test_a_room_does_not_grow(room: str) -> None:
    count = lines(ROOT / "src/nnet3tools" / room if room != "tests" else ROOT / "tests")
    assert count <= BUDGET[room], f"{room} has {count} lines, its budget is {BUDGET[room]}"


def test_every_room_has_a_budget() -> None:
    folders = (p for p in (ROOT / "src/nnet3tools").iterdir() if p.is_dir())
    rooms = {p.name for p in folders if p.name != "__pycache__"}
    assert rooms | {"tests"} == set(BUDGET)
