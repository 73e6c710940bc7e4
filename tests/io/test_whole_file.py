"""Output files appear complete or not at all, in every kind of place, even if the process dies."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nnet3tools.errors import DataError
from nnet3tools.io import whole_file
from nnet3tools.io.files import open_input, open_output, prove_output


@pytest.fixture(autouse=True, params=["without a name", "locked"])
def in_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    whole_file._swept.clear()
    if request.param == "locked":
        monkeypatch.setattr(whole_file, "_without_name", lambda folder: None)


def write(name: str, text: str = "new") -> None:
    with open_output(name, binary=False) as writer:
        writer.write_text(text)


def run_without_rights(action: Callable[[], None]) -> str:
    """Run the action in a process without root's rights; returns its DataError's text or ""."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                tempfile.tempdir = None  # search again: only root may use root's folder
            action()
        except DataError as error:
            os.write(writing, str(error).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading) as pipe:
        return pipe.read()


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user can access."""
    for folder in (tmp_path, *tmp_path.parents):
        if os.stat(folder).st_uid == os.getuid() and folder != Path("/"):
            os.chmod(folder, os.stat(folder).st_mode | 0o055)
    return tmp_path


def test_a_name_of_250_bytes() -> None:
    write("x" * 250)
    write("x" * 250, "newer")
    assert os.listdir() == ["x" * 250]
    assert Path("x" * 250).read_text() == "newer"
    with pytest.raises(DataError, match="File name too long"):
        write("x" * 256)


def test_a_folder_that_is_not_there_and_links_in_a_circle_are_refused() -> None:
    os.symlink("a", "b")
    os.symlink("b", "a")
    for name, problem in (("dir/", "Is a directory"), ("a", "symbolic links"), (".", "directory")):
        with pytest.raises(DataError, match=f"cannot open '{name}' for writing: .*{problem}"):
            write(name)
    assert sorted(os.listdir()) == ["a", "b"]


def test_a_read_only_file_is_not_replaced(open_folder: Path) -> None:
    Path("x").write_text("old")
    os.chmod("x", 0o444)
    os.chmod(".", 0o777)
    assert (
        run_without_rights(lambda: write("x")) == "cannot open 'x' for writing: Permission denied"
    )
    assert Path("x").read_text() == "old"
    assert os.listdir() == ["x"]


def test_a_writable_file_in_a_read_only_folder_is_written(open_folder: Path) -> None:
    Path("x").write_text("old and longer")
    os.chmod("x", 0o666)
    os.chmod(".", 0o555)
    try:
        assert run_without_rights(lambda: write("x")) == ""
        assert Path("x").read_text() == "new"
        assert run_without_rights(lambda: prove_output("x")) == ""
        assert Path("x").read_text() == "new"
        denied = "cannot open 'y' for writing: Permission denied"
        assert (
            run_without_rights(lambda: write("y"))
            == run_without_rights(lambda: prove_output("y"))
            == denied
        )
    finally:
        os.chmod(".", 0o755)


def test_a_file_that_cannot_be_replaced_is_overwritten(open_folder: Path) -> None:
    """Another user's file with write permission, in a folder with the sticky bit as /tmp."""
    Path("x").write_text("old and longer")
    os.chmod("x", 0o666)
    os.chmod(".", 0o1777)
    assert run_without_rights(lambda: write("x")) == ""
    assert Path("x").read_text() == "new"
    assert os.listdir() == ["x"]


def test_a_file_that_is_a_mount_is_overwritten() -> None:
    Path("below").write_text("")
    Path("x").write_text("old and longer")
    if subprocess.run(["mount", "--bind", "x", "below"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs the right to mount")
    try:
        write("below")
        assert Path("x").read_text() == Path("below").read_text() == "new"
    finally:
        subprocess.run(["umount", "below"], check=True)
    assert sorted(os.listdir()) == ["below", "x"]


def test_a_run_with_another_clock_takes_no_file_that_is_being_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another run sweeps the folder just before a new temporary file is locked."""
    lock, swept = whole_file._lock, []

    def swept_first(descriptor: int) -> bool:
        if not swept:
            swept.append(os.listdir())
            with os.scandir() as entries:
                for entry in entries:
                    whole_file._remove_if_stale(entry)
        return lock(descriptor)

    monkeypatch.setattr(whole_file, "_lock", swept_first)
    write("x")
    assert swept
    assert os.listdir() == ["x"]


def test_what_a_killed_process_left_goes_away_and_hinders_nobody() -> None:
    code = (
        "import sys, time; from nnet3tools.io import whole_file as w\n"
        f"if {whole_file._without_name('.') is None}: w._without_name = lambda folder: None\n"
        "with w.whole_file('x') as file:\n"
        "    file.write(b'half'); file.flush(); print('on', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    write("y")  # the file of a running process must stay
    child.stdout.close()
    left = len(os.listdir())
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len(os.listdir()) == left
    whole_file._swept.clear()
    write("x")
    assert sorted(os.listdir()) == ["x", "y"]


def test_a_place_is_proved_without_being_touched() -> None:
    Path("x").write_text("old")
    os.mkfifo("fifo")
    for name in ("x", "y", "fifo", "-", "| cat", "/dev/null", "/dev/stdout"):
        prove_output(name)
    assert Path("x").read_text() == "old"
    assert sorted(os.listdir()) == ["fifo", "x"]
    with pytest.raises(DataError, match="cannot open 'no/x' for writing: No such file"):
        prove_output("no/x")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/{}", "/proc/self/fd/{}"])
def test_own_descriptors_that_are_pipes(name: str) -> None:
    code = (
        "import sys; from nnet3tools.io.files import *\n"
        "with open_input('/dev/stdin') as r, open_output(sys.argv[1], False) as w:\n"
        "    w.write_text(r.read_line())"
    )
    reading, writing = os.pipe()
    command = [sys.executable, "-c", code, name.format(writing)]
    done = subprocess.run(command, input=b"line\n", capture_output=True, pass_fds=[writing])
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert (done.stdout + pipe.read(), done.stderr) == (b"line", b"")


def test_a_descriptor_is_written_where_it_stands() -> None:
    with open("x", "w+") as file:
        file.write("head ")
        file.flush()
        write(f"/dev/fd/{file.fileno()}", "tail")
    assert Path("x").read_text() == "head tail"
    with open_input("cat < x |") as reader:
        assert reader.read_line() == "head tail"
