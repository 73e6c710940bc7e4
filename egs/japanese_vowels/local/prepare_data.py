#!/usr/bin/env python3
"""Turn one .ts file of Japanese Vowels into feats.ark and .scp, targets.ark and .scp, and utt2spk.

usage: prepare_data.py FILE.ts DIR
A line of data is 12 series of cepstra separated by ':', then the speaker (1 to 9).
"""

import sys
from pathlib import Path

import numpy as np

from nnet3tools.errors import DataError, UserError
from nnet3tools.io.holders import INT32_VECTOR, MATRIX
from nnet3tools.io.table import TableWriter


def read_ts(path: Path) -> list[tuple[np.ndarray, int]]:
    """The utterances of a .ts file: (frames x 12 features, speaker from 0)."""
    lines = path.read_text().splitlines()
    utterances = []
    for number in range(lines.index("@data") + 1, len(lines)):
        *series, speaker = lines[number].split(":")
        if len(series) != 12:
            raise DataError(f"{path}:{number + 1}: expected 12 series, found {len(series)}")
        feats = np.array([s.split(",") for s in series], np.float32).T
        utterances.append((feats, int(speaker) - 1))
    return utterances


def main(source: str, target: str) -> None:
    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder.resolve()
    names = []
    with (
        TableWriter(f"ark,scp:{place}/feats.ark,{place}/feats.scp", MATRIX) as feats_writer,
        TableWriter(
            f"ark,scp:{place}/targets.ark,{place}/targets.scp", INT32_VECTOR
        ) as targets_writer,
    ):
        for i, (feats, speaker) in enumerate(read_ts(Path(source))):
            name = f"speaker{speaker + 1}-utt{i:03d}"
            names.append(f"{name} {speaker}\n")
            feats_writer.write(name, feats)
            targets_writer.write(name, np.full(len(feats), speaker, np.int32))
    (folder / "utt2spk").write_text("".join(names))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (UserError, OSError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")
