"""Kaldi's reference cases that the repository holds (README.md): our programs write the same."""

import itertools
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/*/cmd.sh"))
TOKEN = re.compile(r"[\[\],=()]|[^\s\[\],=()]+")


def as_number(token: str) -> float | None:
    """The value of a token; None if it is no number."""
    try:
        return float(token)
    except ValueError:
        return None


def last_decimal(token: str) -> float:
    """The unit of the last printed decimal of a number; 0 for an integer."""
    mantissa, _, exponent = token.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals) if "." in mantissa else 0.0


def block_scales(tokens: list[str]) -> list[float]:
    """For each token the root mean square of the numbers of its [ ... ] block."""
    scales: list[float] = []
    for _, group in itertools.groupby(
        zip(itertools.accumulate(t in ("[", "]") for t in tokens), tokens, strict=True),
        key=lambda pair: pair[0],
    ):
        block = [as_number(token) for _, token in group]
        values = [v for v in block if v is not None and math.isfinite(v)]
        rms = math.sqrt(sum(v * v for v in values) / len(values)) if values else 0.0
        scales += [rms] * len(block)
    return scales


def agree(token: str, wanted: str, scale: float, rtol: float, atol: float) -> bool:
    """Whether two tokens are equal, or numbers within the tolerance."""
    a, b = as_number(token), as_number(wanted)
    if token == wanted or a is None or b is None:
        return token == wanted
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    allowed = max(atol + rtol * max(abs(a), abs(b), scale), 1.05 * last_decimal(wanted))
    return abs(a - b) <= allowed


def difference(text: str, wanted: str, rtol: float, atol: float) -> str:
    """The first difference between two texts; "" if there is none."""
    a, b = TOKEN.findall(text), TOKEN.findall(wanted)
    if len(a) != len(b):
        return f"{len(a)} tokens, expected {len(b)}"
    for i, (x, y, scale) in enumerate(zip(a, b, block_scales(b), strict=True)):
        if not agree(x, y, scale, rtol, atol):
            return f"token {i}: {x}, expected {y}"
    return ""


def text(path: Path) -> str:
    """The file as text; bytes that are no UTF-8 are replaced."""
    return path.read_text(errors="replace")


def test_tolerance_notices_a_wrong_number() -> None:
    assert not difference("x [ 1.0001 2 ]", "x [ 1.0 2 ]", 1e-3, 0.0)
    assert difference("x [ 1.2 2 ]", "x [ 1.0 2 ]", 1e-3, 0.0)
    assert difference("y [ 1.0 2 ]", "x [ 1.0 2 ]", 1e-3, 0.0)
    assert difference("nan", "1.0", 1e-3, 1e-4)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.relative_to(HERE).as_posix())
def test_case(case: Path, tmp_path: Path) -> None:
    folder = tmp_path / "case"
    shutil.copytree(case, folder, ignore=shutil.ignore_patterns("expected"))
    (folder / "out").mkdir()
    programs = HERE.parents[1] / "bin"
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-euo", "pipefail", "cmd.sh"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tolerance = case / "tol"
    rtol, atol = map(float, tolerance.read_text().split()) if tolerance.exists() else (1e-3, 1e-4)
    for expected in (path for path in (case / "expected").rglob("*") if path.is_file()):
        written = folder / "out" / expected.relative_to(case / "expected")
        if expected.suffix == ".bin":
            assert written.read_bytes() == expected.read_bytes(), expected.name
        else:
            found = difference(text(written), text(expected), rtol, atol)
            assert not found, f"{expected.name}: {found}"
