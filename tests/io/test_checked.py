"""Access to files: errors of the system are neither a missing file nor the end of one."""

import errno
import os
from pathlib import Path

import pytest

from nnet3tools.io.checked import NamedFile, exists, is_file, matches
from nnet3tools.io.files import open_input, open_output


def broken(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_broken_disk_is_no_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    assert exists(tmp_path / "a")
    assert is_file(tmp_path / "a")
    assert exists(tmp_path)
    assert not is_file(tmp_path)
    assert not exists(tmp_path / "b")
    assert not exists(tmp_path / "a" / "b")
    assert not exists("cat " + "x" * 5000 + " |")
    assert not exists("zero\0byte")
    monkeypatch.setattr(os, "stat", broken)
    with pytest.raises(OSError, match="Input/output error"):
        exists(tmp_path / "a")
    with pytest.raises(OSError, match="Input/output error"):
        is_file(tmp_path / "a")


def test_patterns_match_names_of_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("x.1.ark", "x.2.ark", "x.a.ark", ".x.3.ark"):
        (tmp_path / name).touch()
    assert sorted(matches(f"{tmp_path}/x.[0-9].ark")) == [f"{tmp_path}/x.{n}.ark" for n in "12"]
    assert len(matches(f"{tmp_path}/*")) == 3
    assert matches(f"{tmp_path}/no/*") == []
    monkeypatch.setattr(os, "listdir", broken)
    with pytest.raises(OSError, match="Input/output error"):
        matches(f"{tmp_path}/*")


def test_errors_name_the_file() -> None:
    with pytest.raises(IsADirectoryError):
        NamedFile("/")
    with NamedFile("/proc/self/mem") as file, pytest.raises(OSError, match="proc/self/mem"):
        file.read(1)
    with open("/dev/full", "rb+", buffering=0) as full:
        file = NamedFile(full.fileno(), "wb", "standard output")
        with pytest.raises(OSError, match=r"No space left .*'standard output'"):
            file.write(b"x")


def test_an_error_while_reading_is_not_one_of_the_data(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="proc/self/mem"), open_input("/proc/self/mem"):
        pass
    # The output is not blamed for it.
    with (
        pytest.raises(OSError, match="proc/self/mem"),
        open_output(str(tmp_path / "out")),
        open_input("/proc/self/mem"),
    ):
        pass
