"""A failing input made small, and kept as a case that a test runs."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

from support.fuzz_readers import FuzzReader
from support.fuzz_trial import attempt

__all__ = ["cases", "keep", "shrunk"]

SECONDS = 60.0


def shrunk(reader: FuzzReader, data: bytes, signature: str) -> bytes:
    """The input without all that its failure does not need (for at most a minute)."""
    until = time.monotonic() + SECONDS

    def fails(candidate: bytes) -> bool:
        if time.monotonic() > until:
            return False
        failure = attempt(reader, candidate)
        return failure is not None and failure.signature == signature

    if not fails(data):
        return data
    size = max(1, len(data) // 2)
    while True:
        before = len(data)
        at = 0
        while at < len(data):
            if fails(candidate := data[:at] + data[at + size :]):
                data = candidate
            else:
                at += size
        if size > 1:
            size //= 2
        elif len(data) == before:
            return data


def keep(folder: Path, reader: str, signature: str, data: bytes) -> Path:
    """File a case: `folder`/<reader>/<fault>-<digest>; its path."""
    digest = hashlib.sha256(data).hexdigest()[:8]
    path = folder / _plain(reader) / f"{_plain(signature)[:80]}-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def cases(folder: Path, readers: list[str]) -> list[tuple[str, Path]]:
    """(reader, file) of every case that was kept."""
    plain = {_plain(name): name for name in readers}
    return [
        (plain[path.parent.name], path)
        for path in sorted(folder.glob("*/*-*"))
        if path.parent.name in plain
    ]


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_")
