#!/usr/bin/env python3
"""prepare_data.py RECORDINGS OUT: Kaldi data folders of the Free Spoken Digit Dataset.

OUT/train has recordings 5 to 49 of each digit and speaker, OUT/test the usual test set, 0 to 4.
Utterances are named speaker-digit-recording. RECORDINGS holds files such as 7_jackson_32.wav.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

NAME = re.compile(r"([0-9])_([a-z]+)_([0-9]{1,2})\.wav")


def main(source: Path, target: Path) -> None:
    """Write both folders."""
    parts: dict[str, list[tuple[str, str, str, Path]]] = {"train": [], "test": []}
    for path in source.iterdir():
        if match := NAME.fullmatch(path.name):
            digit, speaker, index = match.groups()
            part = "test" if int(index) < 5 else "train"
            parts[part].append((f"{speaker}-{digit}-{index:0>2}", speaker, digit, path.resolve()))
    for part, rows in parts.items():
        if not rows:
            raise SystemExit(
                f"{source}: no recordings such as 7_jackson_{int(part == 'train') * 9}.wav"
            )
        write(target / part, sorted(rows))


def write(folder: Path, rows: list[tuple[str, str, str, Path]]) -> None:
    """One data folder."""
    folder.mkdir(parents=True, exist_ok=True)
    by_speaker: dict[str, list[str]] = {}
    for name, speaker, _, _ in rows:
        by_speaker.setdefault(speaker, []).append(name)
    files = {
        "wav.scp": [f"{name} {path}" for name, _, _, path in rows],
        "utt2spk": [f"{name} {speaker}" for name, speaker, _, _ in rows],
        "text": [f"{name} {digit}" for name, _, digit, _ in rows],
        "spk2utt": [f"{speaker} {' '.join(names)}" for speaker, names in by_speaker.items()],
    }
    for file, lines in files.items():
        (folder / file).write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
