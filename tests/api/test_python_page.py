"""docs/python.md: its code runs as it stands and prints what the page shows."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from support.tiny_recognizer import write_recognizer

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.S | re.M)


def write_question() -> None:
    """Half a second of noise as question.wav and question.raw."""
    write_recognizer(Path("model"))
    samples = np.random.default_rng(6).normal(0, 2000, 8000).astype("<i2").tobytes()
    header = b"RIFF" + (36 + 16000).to_bytes(4, "little") + b"WAVEfmt \x10\0\0\0\1\0\1\0"
    header += (16000).to_bytes(4, "little") + (32000).to_bytes(4, "little") + b"\2\0\x10\0data"
    Path("question.wav").write_bytes(header + (16000).to_bytes(4, "little") + samples)
    Path("question.raw").write_bytes(samples)


def test_the_code_prints_what_the_page_shows() -> None:
    pytest.importorskip("kaldi_native_fbank")
    write_question()
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 10
    names: dict[str, object] = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == shown
