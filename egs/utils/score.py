#!/usr/bin/env python3
"""Classify each utterance by its summed log-posteriors and count what is right.

usage: score.py NAME OUTPUT.ark LABELS [PICTURE.png]
LABELS has lines "utterance class", classes from 0. Prints what is wrong, the confusion matrix, and
last the line `RESULT NAME <right> <total>`. The picture of the matrix needs matplotlib.
"""

import sys
from pathlib import Path

import numpy as np

from nnet3tools.errors import UserError
from nnet3tools.io.holders import MATRIX
from nnet3tools.io.table import SequentialTableReader


def main(name: str, output: str, labels: str, picture: str = "") -> None:
    truth = dict(line.split() for line in Path(labels).read_text().splitlines())
    found = {}
    with SequentialTableReader(f"ark:{output}", MATRIX) as reader:
        for utterance, log_posteriors in reader:
            found[utterance] = int(log_posteriors.sum(axis=0).argmax())
    for utterance, label in truth.items():
        if found.get(utterance) != int(label):
            print(f"  {utterance}: expected {label}, found {found.get(utterance, 'nothing')}")
    pairs = [
        (int(label), found[utterance]) for utterance, label in truth.items() if utterance in found
    ]
    num_classes = 1 + max((max(pair) for pair in pairs), default=0)
    counts = np.zeros((num_classes, num_classes), int)
    np.add.at(counts, tuple(np.array(pairs, int).reshape(-1, 2).T), 1)
    print(confusions(counts))
    if picture:
        draw(counts, picture)
    if (report := Path(output).parent / "report.html").exists():
        print(f"  curves, network and times of the training: {report.resolve()}")
    print(f"RESULT {name} {int(counts.trace())} {len(truth)}")


def confusions(counts: np.ndarray) -> str:
    """The matrix as text: a row for each true class, a column for each found one."""
    width = len(str(counts.max())) + 1
    cells = [
        ["" if c == 0 and i != j else str(c) for j, c in enumerate(row)]
        for i, row in enumerate(counts)
    ]
    rows = [" ".join(["true"] + [f"{j:>{width}}" for j in range(len(counts))]) + "   <- found"]
    rows += [" ".join([f"{i:>4}"] + [f"{c:>{width}}" for c in row]) for i, row in enumerate(cells)]
    return "\n".join(rows)


def draw(counts: np.ndarray, picture: str) -> None:
    """The matrix as a PNG file."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("  (no picture: matplotlib is not installed)")
        return
    figure = Figure(figsize=(5, 4.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    axes.imshow(np.sqrt(counts), cmap="Blues")
    for (i, j), count in np.ndenumerate(counts):
        if count:
            dark = count > counts.max() / 3
            axes.text(j, i, count, ha="center", va="center", color="white" if dark else "black")
    axes.set(xlabel="found", ylabel="true", xticks=range(len(counts)), yticks=range(len(counts)))
    figure.savefig(picture)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (UserError, OSError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")
