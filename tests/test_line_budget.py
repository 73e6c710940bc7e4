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
    "api": 828,
    "chain": 5788,
    "cli": 11945,
    "compiler": 1448,
    "decoding": 4428,
    "discriminative": 1326,
    "executor": 3265,
    "expression": 5885,
    "features": 1151,
    "fst": 4173,
    "grammars": 722,
    "graph": 3143,
    "io": 5845,
    "lang": 2170,
    "nnet": 13535,
    "optimizer": 3543,
    "program": 4046,
    "recipe": 9020,
    "recognizer": 2869,
    "tensor": 16969,
    "training": 5184,
    "xconfig": 2825,
    "tests": 61174,
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
