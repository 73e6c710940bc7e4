#!/usr/bin/env python3
"""digit_targets.py DATA OUT: the digit of an utterance as the target of each of its frames.

OUT is an archive of integer vectors, in text. DATA has text and utt2num_frames.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(data: Path, target: Path) -> None:
    """Write the archive."""
    lengths = dict(line.split() for line in (data / "utt2num_frames").open())
    with target.open("w") as file:
        for line in (data / "text").open():
            name, digit = line.split()
            file.write(f"{name} {' '.join([digit] * int(lengths[name]))}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
