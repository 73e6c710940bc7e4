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
    "api": 832,
    "chain": 5489,
    "cli": 10538,
    "compiler": 1062,
    "decoding": 4407,
    "discriminative": 1362,
    "executor": 3165,
    "expression": 4981,
    "features": 1163,
    "fst": 4169,
    "grammars": 667,
    "graph": 3133,
    "io": 5267,
    "lang": 2127,
    "nnet": 12711,
    "optimizer": 3319,
    "program": 3745,
    "recipe": 8811,
    "recognizer": 2835,
    "tensor": 16854,
    "training": 4700,
    "xconfig": 2913,
    "tests": 52907,
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
