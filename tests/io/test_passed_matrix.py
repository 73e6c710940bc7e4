"""Tests for matrices that pass from table to table as bytes."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools.cli.data.copies import copy_feats
from nnet3tools.io.general_matrix import CompressedMatrix
from nnet3tools.io.holders import DOUBLE_MATRIX, GENERAL_MATRIX, MATRIX
from nnet3tools.io.passed_matrix import PASSED_MATRIX
from nnet3tools.io.table import SequentialTableReader, TableWriter

FULL = np.arange(2000, dtype=np.float32).reshape(400, 5)
FORMS = {
    "full": (GENERAL_MATRIX, FULL),
    "large": (GENERAL_MATRIX, np.ones((1500, 1000), np.float32)),
    "double": (DOUBLE_MATRIX, FULL.astype(np.float64)),
    "compressed": (GENERAL_MATRIX, CompressedMatrix.from_dense(FULL)),
    "empty": (GENERAL_MATRIX, np.empty((0, 0), np.float32)),
}


@pytest.mark.parametrize("target", ["ark", "ark,t", "ark,scp", "scp"])
@pytest.mark.parametrize("source", ["ark:in", "scp:in.scp", "ark:cat in |", "scp:parts"])
def test_the_same_bytes_as_by_arrays(tmp_path: Path, monkeypatch, source, target) -> None:
    monkeypatch.chdir(tmp_path)
    with TableWriter("ark,scp:in,in.scp", GENERAL_MATRIX) as writer:
        for key, (holder, matrix) in FORMS.items():
            writer._holder = holder
            writer.write(key, matrix)
    lines = Path("in.scp").read_text().splitlines()
    Path("parts").write_text("".join(f"{line}[1:3]\n" for line in lines[:-1]))
    Path("named").write_text("".join(f"{key} file-{key}\n" for key in FORMS))
    specifier = {"ark,scp": "ark,scp:out,out.scp", "scp": "scp:named"}.get(target, f"{target}:out")
    made = []
    for holder in (MATRIX, PASSED_MATRIX):
        with SequentialTableReader(source, holder) as reader:
            with TableWriter(specifier, holder) as writer:
                for key, matrix in reader:
                    writer.write(key, matrix)
        files = [*tmp_path.glob("out*"), *tmp_path.glob("file-*")]
        made.append({path.name: path.read_bytes() for path in files})
    assert made[0] == made[1]


def test_matrices_that_end_too_early_are_refused(tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    with TableWriter("ark:in", MATRIX) as writer:
        writer.write("a", FULL)
    whole = Path("in").read_bytes()
    for size in (3, 5, 10, 16, 500, len(whole) - 1):
        Path("in").write_bytes(whole[:size])
        assert copy_feats(["ark:in", "ark:out"]) == 255
        assert "ERROR" in capfd.readouterr().err
        assert not Path("out").exists()
