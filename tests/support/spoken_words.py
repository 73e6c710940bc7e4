"""Recordings of words for tests of users' own data: tones for letters, or espeak-ng's voices."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORDS = "zero one two three four five six seven eight nine".split()
VOICES = ("en-us", "en-gb", "en-gb-scotland", "en-us+f2", "en-us+m3", "en-gb+f4")
ESPEAK = shutil.which("espeak-ng")


def tones(word: str, voice: int = 0, rate: int = 16000) -> NDArray[np.float64]:
    """A word as sound: for each letter 80 ms of two tones; voices differ in pitch."""
    times = np.arange(round(0.08 * rate)) / rate
    pieces = [np.zeros(rate // 10)]
    for letter in word:
        number = ord(letter) - ord("a")
        pitches = (300 + 60 * (number % 6), 1200 + 200 * (number // 6))
        pieces.append(sum(np.sin(2 * np.pi * p * (1 + 0.05 * voice) * times) for p in pitches))
    pieces.append(np.zeros(rate // 10))
    sound = np.concatenate(pieces)
    noise = np.random.default_rng(len(word) + voice).standard_normal(len(sound))
    return 0.2 * sound + 0.002 * noise


def write_recordings(folder: Path, kind: str = "wav", rate: int = 16000) -> list[tuple[str, ...]]:
    """Write tones of WORDS in six voices as sound files; rows of file name, word, voice."""
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, voice in enumerate(VOICES):
        for word in WORDS:
            name = f"{voice}-{word}.{kind}"
            soundfile.write(folder / name, tones(word, number, rate), rate)
            rows.append((name, word, voice))
    return rows


def write_espeak_recordings(folder: Path) -> list[tuple[str, ...]]:
    """The same rows, spoken by espeak-ng's voices (22,050 Hz)."""
    assert ESPEAK is not None
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(f"{voice}-{word}.wav", word, voice) for voice in VOICES for word in WORDS]
    for name, word, voice in rows:
        subprocess.run([ESPEAK, "-v", voice, "-w", str(folder / name), word], check=True)
    return rows


def write_manifest(path: Path, rows: list[tuple[str, ...]]) -> None:
    """Write rows of file name, text and speaker as a TSV or CSV manifest."""
    separator = "\t" if path.suffix == ".tsv" else ","
    lines = [("path", "sentence", "client_id"), *rows]
    path.write_text("".join(separator.join(line) + "\n" for line in lines), encoding="utf-8")
