#!/usr/bin/env python3
"""Classify each utterance by its summed log-posterior and count what is right.

usage: score.py OUTPUT.ark UTT2SPK
Prints the confusions and the line `RESULT japanese_vowels <right> <total>`.
"""

import sys
from pathlib import Path

from nnet3tools.errors import UserError
from nnet3tools.io.holders import MATRIX
from nnet3tools.io.table import SequentialTableReader


def main(output: str, utt2spk: str) -> None:
    truth = dict(line.split() for line in Path(utt2spk).read_text().splitlines())
    found = {}
    with SequentialTableReader(f"ark:{output}", MATRIX) as reader:
        for name, log_posteriors in reader:
            found[name] = str(log_posteriors.sum(axis=0).argmax())
    for name, speaker in truth.items():
        if found.get(name) != speaker:
            print(f"  {name}: expected speaker {speaker}, found {found.get(name, 'nothing')}")
    right = sum(found.get(name) == speaker for name, speaker in truth.items())
    print(f"RESULT japanese_vowels {right} {len(truth)}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (UserError, OSError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")
