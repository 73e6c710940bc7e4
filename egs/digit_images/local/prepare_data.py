#!/usr/bin/env python3
"""Turn scikit-learn's digits into Kaldi tables of images and labels.

usage: prepare_data.py DIGITS.csv.gz DIR
A line has 64 grey values from 0 to 16, row by row, then the digit. Every fifth image is for the
test; of the others every tenth number is for validation. DIR gets test, valid and train, each with
images.ark (a matrix an image: a row for each column of the image, as time goes from left to right,
with values from 0 to 1), labels.ark (one row, 1 for the digit) and labels ("name digit" lines).
"""

import sys
from pathlib import Path

import numpy as np

from nnet3tools.errors import DataError, UserError
from nnet3tools.io.holders import MATRIX
from nnet3tools.io.table import TableWriter

SIZE = 8


def main(source: str, target: str) -> None:
    rows = np.loadtxt(source, delimiter=",")
    if rows.ndim != 2 or rows.shape[1] != SIZE * SIZE + 1:
        raise DataError(f"{source}: expected {SIZE * SIZE + 1} numbers a line, found {rows.shape}")
    images = (rows[:, :-1] / 16).reshape(-1, SIZE, SIZE).transpose(0, 2, 1).astype(np.float32)
    digits = rows[:, -1].astype(int)
    numbers = np.arange(len(rows))
    is_test = numbers % 5 == 4
    is_valid = ~is_test & (numbers % 10 == 0)
    for name, chosen in (("test", is_test), ("valid", is_valid), ("train", ~is_test & ~is_valid)):
        write(Path(target) / name, numbers[chosen], images[chosen], digits[chosen])


def write(folder: Path, numbers: np.ndarray, images: np.ndarray, digits: np.ndarray) -> None:
    """One part."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"image{number:04d}" for number in numbers]
    with (
        TableWriter(f"ark:{folder}/images.ark", MATRIX) as images_writer,
        TableWriter(f"ark:{folder}/labels.ark", MATRIX) as labels_writer,
    ):
        for name, image, digit in zip(names, images, digits, strict=True):
            images_writer.write(name, image)
            labels_writer.write(name, np.eye(10, dtype=np.float32)[digit : digit + 1])
    lines = [f"{name} {digit}\n" for name, digit in zip(names, digits, strict=True)]
    (folder / "labels").write_text("".join(lines))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (UserError, OSError, ValueError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")
