"""Files, offsets and matrices beyond 2^31 and 2^32. Files are sparse, so that they take no disk."""

import filecmp
import resource
import struct
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io import compressed_codes, input_buffer, memory
from nnet3tools.io.compressed import CompressedMatrix
from nnet3tools.io.files import copy_contents
from nnet3tools.io.holders import MATRIX
from nnet3tools.io.table import RandomAccessTableReader
from nnet3tools.io.writer import Writer
from nnet3tools.training.example import NnetExample, NnetIo, frames_io
from support.programs import read_table
from support.shell import Shell

GB = 10**9
OFFSETS = (0, 2**31 - 9, 2**31 + GB, 2**32 - 9, 2**32 + GB, 50 * GB, 99 * GB)
SIDE = 46341
"""SIDE * SIDE is more than 2^31."""


def full_head(rows: int, cols: int) -> bytes:
    """What stands before the elements of a matrix in the form FM."""
    return b"FM " + struct.pack("<bibi", 4, rows, 4, cols)


def example(value: float) -> bytes:
    """A binary example whose features are 3 x 2 and of this value."""
    features = frames_io("input", 0, np.full((3, 2), value, np.float32))
    labels = NnetIo("output", np.zeros((1, 3), np.int32), np.ones((1, 4), np.float32))
    file = BytesIO()
    NnetExample([features, labels]).write(Writer(file))
    return b"\0B" + file.getvalue()


def far_table(name: str, objects: list[bytes]) -> str:
    """An archive of 100 GB with the objects at OFFSETS; the rspecifier of its script."""
    with open(f"{name}.ark", "wb") as archive, open(f"{name}.scp", "w") as script:
        for i, (offset, data) in enumerate(zip(OFFSETS, objects, strict=True)):
            archive.seek(offset)
            archive.write(b"k%d " % i)
            script.write(f"k{i} {name}.ark:{archive.tell()}\n")
            archive.write(data)
        archive.truncate(100 * GB)
    return f"scp:{name}.scp"


def in_small_memory(*words: str, num_bytes: int = 300 << 20) -> str:
    """The log of a program that may take so much memory; it must end with status 0."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (num_bytes, num_bytes))

    done = subprocess.run(
        [sys.executable, "-m", "nnet3tools.cli", *words],
        preexec_fn=limit, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_scripts_point_beyond_4_gb(shell: Shell) -> None:
    matrices = [
        b"\0B" + full_head(2, 3) + np.full(6, i, np.float32).tobytes() for i in range(len(OFFSETS))
    ]
    script = far_table("far", matrices)
    in_small_memory("copy-feats", script, "ark:out")
    copied = shell.read("out")
    assert [copied[f"k{i}"].tolist() for i in range(len(OFFSETS))] == [
        np.full((2, 3), i).tolist() for i in range(len(OFFSETS))
    ]
    with RandomAccessTableReader(script, MATRIX) as reader:
        assert [reader[f"k{i}"][1, 2] for i in (6, 0, 4, 3, 1)] == [6, 0, 4, 3, 1]


def test_scripts_of_examples_point_beyond_4_gb(shell: Shell) -> None:
    examples = [example(i) for i in range(len(OFFSETS))]
    in_small_memory("nnet3-copy-egs", far_table("far", examples), "ark:out")
    expected = b"".join(b"k%d " % i + data for i, data in enumerate(examples))
    assert Path("out").read_bytes() == expected


def test_a_matrix_above_the_free_memory_is_refused(shell: Shell) -> None:
    with open("ark", "wb") as archive:
        archive.write(b"m \0B" + full_head(2**31 - 1, 100))
        archive.truncate(900 * GB)
    error = shell.error("copy-feats", "ark:ark", "ark:out")
    assert "key 'm':" in error
    assert "a matrix of 2147483647 x 100 takes 858993458800 bytes of memory, of which" in error
    assert not Path("out").exists()


def test_memory_is_looked_at_before_matrices_are_decompressed_and_pipes_read(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_LARGE", 0)
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    matrix = CompressedMatrix.from_dense(np.eye(16, dtype=np.float32))
    with pytest.raises(DataError, match="16 x 16 takes 1024 bytes of memory, of which 1000 are"):
        matrix.to_dense()
    monkeypatch.setattr(input_buffer, "_BIG_PIECE", 1 << 16)
    large = {"m": np.zeros((200, 200), np.float32)}
    shell.write("ark", MATRIX, large)
    assert "takes 188928 bytes" in shell.error("copy-matrix", "ark:cat ark |", "ark:out")


def test_parts_of_a_large_compressed_matrix_are_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for rows in (3, 100, 300):  # 300: by tables of codes
        dense = np.random.default_rng(rows).normal(size=(rows, 7)).astype(np.float32)
        matrix = CompressedMatrix.from_dense(dense)
        whole = matrix.to_dense()
        with monkeypatch.context() as patch:
            patch.setattr(compressed_codes, "_DECODED", 2 * rows)
            np.testing.assert_array_equal(matrix.to_dense(), whole)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["FM", "CM", "CM2", "CM3"])
def test_rows_of_a_matrix_beyond_2_31_elements(shell: Shell, form: str) -> None:
    """Takes up to 13 GB of memory."""
    if memory.free_memory() < 14 * GB:
        pytest.skip("needs 14 GB of memory")
    head = b"\0B" + form.encode() + b" " + struct.pack("<ffii", 0.0, 1.0, SIDE, SIDE)
    codes = {"CM": b"\xff", "CM2": b"\xff\xff", "CM3": b"\xff"}
    if form == "FM":
        head, last = b"\0B" + full_head(SIDE, SIDE), struct.pack("<f", 1.0)
    else:
        last = codes[form]
    if form == "CM":
        head += np.tile(np.array([0, 1, 2, 65535], "<u2"), SIDE).tobytes()
    with open("large.ark", "wb") as archive:
        archive.write(b"m " + head)
        archive.seek(len(last) * (SIDE * SIDE - 1), 1)
        archive.write(last + b"next \0B" + full_head(1, 1) + struct.pack("<f", 7.0))
    end = SIDE - 1
    lines = f"a large.ark:2[{end - 1}:{end},{end - 1}:{end}]\nb large.ark:2[0:1,0:1]\n"
    Path("scp").write_text(lines)
    shell("copy-feats", "scp:scp", "ark:out")
    found = shell.read("out")
    assert found["a"].tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert found["b"].tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.slow
def test_an_archive_of_examples_beyond_4_gb_is_walked_in_little_memory(shell: Shell) -> None:
    """The features of every second example take 60 MB, as the walk over bytes takes them."""
    small, rows = example(1.0), 3
    head, rest = small.split(full_head(rows, 2))
    cols, count = 5_000_000, 75
    with open("egs", "wb") as archive:
        for i in range(count):
            archive.write(b"small%d " % i + small)
            archive.write(b"large%d " % i + head + full_head(rows, cols))
            archive.seek(4 * rows * cols, 1)
            archive.write(rest[4 * rows * 2 :])
        assert archive.tell() > 2**32
    log = in_small_memory("nnet3-copy-egs", "ark:egs", "ark,scp:/dev/null,out.scp")
    assert f"wrote {2 * count}" in log
    for line in Path("out.scp").read_text().splitlines()[-2:]:
        key, place = line.split()
        with open("egs", "rb") as archive:
            archive.seek(int(place.rpartition(":")[2]) - len(key) - 1)
            assert archive.read(len(key) + 3) == key.encode() + b" \0B"


@pytest.mark.slow
def test_a_model_beyond_2_31_bytes_is_read_copied_and_computed(shell: Shell) -> None:
    """Takes 2.2 GB of disk and 5 GB of memory."""
    dim = 23200
    Path("config").write_text(
        "input-node name=input dim=10\n"
        "component name=a type=LinearComponent input-dim=10 output-dim=10 param-stddev=0\n"
        "component-node name=a component=a input=input\noutput-node name=output input=a\n"
    )
    shell("nnet3-init", "config", "small.raw")
    small = Path("small.raw").read_bytes().replace(b"dim=10\n", b"dim=%d\n" % dim)
    begin, end = small.split(full_head(10, 10))
    with open("large.raw", "wb") as model:
        model.write(begin + full_head(dim, dim))
        model.seek(4 * (dim * dim - 1), 1)
        model.write(struct.pack("<f", 3.0) + end[400:])
        assert model.tell() > 2**31
    shell("nnet3-info", "large.raw")
    assert f"num-parameters: {dim * dim}" in shell.out
    shell("nnet3-copy", "large.raw", "copy.raw")
    assert filecmp.cmp("large.raw", "copy.raw", shallow=False)
    Path("copy.raw").unlink()
    features = np.zeros((1, dim), np.float32)
    features[0, -1] = 2.0
    shell.write("features", MATRIX, {"u": features})
    shell("nnet3-compute", "large.raw", "ark:features", "ark:out")
    found = read_table("ark:out")["u"]
    assert found.shape == (1, dim)
    assert found[0, -1] == 6.0
    assert not found[0, :-1].any()


@pytest.mark.slow
def test_a_file_above_the_bound_for_texts_is_copied_whole(tmp_path: Path) -> None:
    """A decoding graph may be larger than the texts that programs read at once."""
    source, target = tmp_path / "HCLG.fst", tmp_path / "copy"
    with source.open("wb") as file:
        file.truncate(input_buffer.MAX_TEXT + 1)
    copy_contents(source, target)
    assert filecmp.cmp(source, target, shallow=False)
