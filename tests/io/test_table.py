"""Tables and file names: every option, every kind of source, every kind of failure."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.errors import DataError, OptionError, UserError
from nnet3tools.io import holders
from nnet3tools.io.files import open_input, open_output, read_text_lines
from nnet3tools.io.table import (
    MappedTableReader,
    RandomAccessTableReader,
    SequentialTableReader,
    TableWriter,
)


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def matrices(keys: str = "a b c") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {key: rng.normal(size=(i + 2, 3)).astype("f4") for i, key in enumerate(keys.split())}


def write(wspecifier: str, objects: dict, holder: holders.Holder = holders.MATRIX) -> None:
    with TableWriter(wspecifier, holder) as writer:
        for key, value in objects.items():
            writer.write(key, value)


def check(rspecifier: str, objects: dict, holder: holders.Holder = holders.MATRIX) -> None:
    with SequentialTableReader(rspecifier, holder) as reader:
        found = list(reader)
    assert [key for key, _ in found] == list(objects)
    for key, value in found:
        np.testing.assert_allclose(value, objects[key], rtol=1e-6)


@pytest.mark.parametrize(
    ("wspecifier", "rspecifiers"),
    [
        ("ark:x.ark", ["ark:x.ark", "t,bg,o,ark:x.ark", "b,s,cs,p,ark:x.ark"]),
        ("ark,t:x.ark", ["ark:x.ark", "ark:cat x.ark |", "ark:gzip -c x.ark | gunzip -c |"]),
        ("ark:| cat > x.ark", ["ark:x.ark"]),
        ("ark,scp:x.ark,x.scp", ["scp:x.scp", "ark:x.ark", "scp,bg:x.scp", "scp:cat x.scp |"]),
        ("ark,scp,t,f:x.ark,x.scp", ["scp:x.scp", "ark:x.ark"]),
        ("t,nf,ark:x.ark", ["no,ns,ncs,np,ark:x.ark"]),
    ],
)
def test_tables_come_back(wspecifier: str, rspecifiers: list[str]) -> None:
    objects = matrices()
    write(wspecifier, objects)
    for rspecifier in rspecifiers:
        check(rspecifier, objects)
        for options in ("", "s,", "s,cs,", "o,"):
            with RandomAccessTableReader(options + rspecifier, holders.MATRIX) as table:
                assert "aa" not in table
                assert "b" in table
                np.testing.assert_allclose(table["b"], objects["b"], rtol=1e-6)
                assert "bb" not in table
                np.testing.assert_allclose(table["c"], objects["c"], rtol=1e-6)
                with pytest.raises(DataError, match="no key 'd'"):
                    table["d"]
                assert table.get("d") is None


def test_archive_bytes_and_offsets_are_kaldis() -> None:
    write("ark,scp:x.ark,x.scp", {"u1": 5, "u2": -1}, holders.INT32)
    assert Path("x.ark").read_bytes() == b"u1 \0B\4\5\0\0\0u2 \0B\4\xff\xff\xff\xff"
    assert Path("x.scp").read_text() == "u1 x.ark:3\nu2 x.ark:13\n"
    write("ark,t:x.ark", {"u1": 5, "u2": -1}, holders.INT32)
    assert Path("x.ark").read_text() == "u1 5 \nu2 -1 \n"
    write("ark,t:x.ark", {"u1": np.float32([[1, 2]])})
    assert Path("x.ark").read_text() == "u1  [\n  1 2 ]\n"


@pytest.mark.parametrize(
    ("holder", "values", "text"),
    [
        (holders.INT32, [5, -3], "k0 5 \nk1 -3 \n"),
        (holders.FLOAT, [0.5, -3.0], "k0 0.5 \nk1 -3 \n"),
        (holders.DOUBLE, [0.1, 1e300], "k0 0.1 \nk1 1e+300 \n"),
        (holders.BOOL, [True, False], "k0 T \nk1 F \n"),
        (holders.INT32_VECTOR, [np.array([1, -2]), np.array([], "i4")], "k0 1 -2 \nk1 \n"),
        (holders.VECTOR, [np.float32([1, 2]), np.float32([])], "k0  [ 1 2 ]\nk1  [ ]\n"),
    ],
)
@pytest.mark.parametrize("binary", ["ark,t", "ark"])
def test_every_holder(holder: holders.Holder, values: list, text: str, binary: str) -> None:
    objects = {f"k{i}": value for i, value in enumerate(values)}
    write(f"{binary}:x", objects, holder)
    if binary == "ark,t":
        assert Path("x").read_text() == text
    check("ark:x", objects, holder)


@pytest.mark.parametrize("mode", ["ark,t", "ark"])
def test_words_are_text_in_any_mode(mode: str) -> None:
    write(f"{mode}:x", {"u1": "spk1", "u2": "spk2"}, holders.TOKEN)
    assert Path("x").read_text() == "u1 spk1\nu2 spk2\n"
    with SequentialTableReader("ark:x", holders.TOKEN) as table:
        assert dict(table) == {"u1": "spk1", "u2": "spk2"}
    write(f"{mode}:x", {"u1": ["a", "b"], "u2": []}, holders.TOKEN_VECTOR)
    assert Path("x").read_text() == "u1 a b \nu2 \n"
    with SequentialTableReader("ark:x", holders.TOKEN_VECTOR) as table:
        assert dict(table) == {"u1": ["a", "b"], "u2": []}


def test_mapped_table() -> None:
    write("ark:x", {"s1": 1, "s2": 2}, holders.INT32)
    Path("map").write_text("u1 s1\nu2 s2\nu3 s3\n")
    with MappedTableReader("ark:x", holders.INT32, "ark:map") as table:
        assert table["u2"] == 2
        assert "u3" not in table
        assert "s1" not in table
        assert table.get("u3") is None
        with pytest.raises(DataError, match="no key 's1' in the map"):
            table["s1"]
    with MappedTableReader("ark:x", holders.INT32) as table:
        assert table["s1"] == 1


# -- ranges, scripts


def test_ranges_of_matrices_and_vectors(capsys: pytest.CaptureFixture) -> None:
    matrix = np.arange(50, dtype="f4").reshape(10, 5)
    write("ark,scp:x.ark,x.scp", {"a": matrix})
    entry = Path("x.scp").read_text().split()[1]
    cases = {
        "r1": ("0:3", matrix[:4]),
        "r2": ("2:2,1:3", matrix[2:3, 1:4]),
        "r3": (":,0:0", matrix[:, :1]),
        "r4": ("5:11", matrix[5:]),
    }
    Path("y.scp").write_text("".join(f"{k} {entry}[{r}]\n" for k, (r, _) in cases.items()))
    expected = {key: part for key, (_, part) in cases.items()}
    check("scp:y.scp", expected)
    check("scp:y.scp", expected)
    assert "beyond the 10 rows" in capsys.readouterr().err
    with SequentialTableReader("scp:y.scp", holders.GENERAL_MATRIX) as table:
        for key, value in table:
            np.testing.assert_array_equal(value, expected[key])
    write("ark:v.ark", {"a": matrix[0]}, holders.VECTOR)
    Path("v.scp").write_text("a v.ark:2[1:2]\n")
    check("scp:v.scp", {"a": matrix[0, 1:3]}, holders.VECTOR)
    for bad in ("4", "3:1", "0:13", "0:1,0:5", "x:y", "20:20"):
        Path("y.scp").write_text(f"k {entry}[{bad}]\n")
        with pytest.raises(DataError, match="key 'k'"):
            check("scp:y.scp", {})


def test_script_writes_each_object_to_its_file() -> None:
    Path("out.scp").write_text("a out.a\nb out.b\n")
    objects = matrices("a b")
    write("scp,t:out.scp", objects)
    check("scp:out.scp", objects)
    with pytest.raises(DataError, match="no entry for key 'c'"):
        write("scp:out.scp", matrices("c"))
    write("scp,p:out.scp", matrices("c"))


def test_script_entries_may_be_pipes() -> None:
    objects = matrices("a b")
    write("ark,scp:x.ark,x.scp", objects)
    Path("one").write_bytes(b"\0BFM \4\1\0\0\0\4\1\0\0\0\0\0\x80?")
    Path("y.scp").write_text("p cat one |\nq one\n")
    check("scp:y.scp", {"p": [[1]], "q": [[1]]})


# -- options of random access


def test_once_forgets_and_refuses_a_second_time() -> None:
    write("ark:x", {"a": 1, "b": 2}, holders.INT32)
    with RandomAccessTableReader("o,ark:x", holders.INT32) as table:
        assert table["b"] == 2
        with pytest.raises(DataError, match="a second time"):
            table["b"]
        assert table["a"] == 1


def test_sorted_options_are_checked() -> None:
    write("ark:x", {"b": 1, "a": 2, "c": 3}, holders.INT32)
    with RandomAccessTableReader("s,ark:x", holders.INT32) as table:
        with pytest.raises(DataError, match="not in sorted order"):
            table["c"]
    write("ark:y", {"a": 1, "b": 2, "c": 3}, holders.INT32)
    with RandomAccessTableReader("s,cs,ark:y", holders.INT32) as table:
        assert table["b"] == 2
        with pytest.raises(DataError, match="asked for 'a' after 'b'"):
            table["a"]
    with RandomAccessTableReader("s,ark:y", holders.INT32) as table:
        assert table["b"] == 2
        assert table["a"] == 1
    write("ark:z", {"a": 1}, holders.INT32)
    Path("z").write_bytes(Path("z").read_bytes() * 2)
    with RandomAccessTableReader("ark:z", holders.INT32) as table:
        with pytest.raises(DataError, match="duplicate key 'a'"):
            table["b"]


def test_permissive_hides_what_cannot_be_read(capsys: pytest.CaptureFixture) -> None:
    objects = matrices()
    write("ark:x", objects)
    Path("cut").write_bytes(Path("x").read_bytes()[:-5])
    check("p,ark:cut", {key: objects[key] for key in "ab"})
    assert "WARNING" in capsys.readouterr().err
    Path("y.scp").write_text("a missing\nb x:2\n")
    with SequentialTableReader("p,scp:y.scp", holders.MATRIX) as table:
        assert [key for key, _ in table] == ["b"]
    with RandomAccessTableReader("p,scp:y.scp", holders.MATRIX) as table:
        assert "a" not in table
        assert "b" in table
    with RandomAccessTableReader("p,ark:cut", holders.MATRIX) as table:
        assert "c" not in table


# -- failures


@pytest.mark.parametrize("prefix", ["", "bg,", "s,", "s,cs,"])
def test_truncated_archive_names_table_key_and_offset(prefix: str) -> None:
    write("ark:x", matrices())
    data = Path("x").read_bytes()
    Path("cut").write_bytes(data[:-5])
    message = "cut: key 'c': byte 111: expected a matrix of 4 x 3 .48 bytes., found 43 bytes"
    with pytest.raises(DataError, match=message):
        check(f"{prefix}ark:cut", {})
    with RandomAccessTableReader(f"{prefix}ark:cut", holders.MATRIX) as table:
        with pytest.raises(DataError, match="cut: key 'c'"):
            table["c"]
    with pytest.raises(DataError, match="key 'c'"):
        check("ark:cat cut |", {})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"justaword", "byte 0: expected a key and a space, found 'justaword'"),
        (b"a \0Bgarbage more", "key 'a': .*expected a matrix .* found 'garbage'"),
        (b"a \0X", "key 'a': .*header"),
        (b"a hello", "expected a matrix"),
        (random.Random(0).randbytes(3000).replace(b" ", b"x"), "expected"),
        (b"\xff" * 58 + b" " + b"\x01" * 40, "key binary bytes: byte 59: expected a matrix"),
    ],
)
def test_garbage_archives(data: bytes, message: str) -> None:
    Path("x").write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        check("ark:x", {})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n", "line 1: expected 'key rxfilename', found 'a'"),
        ("a x\n\n", "line 2 .* empty"),
        ("a x\0y\n", "byte 3: expected text, found binary bytes"),
        ("a x:" + "9" * 20 + "\n", "an offset that no file has"),
        ("a x:" + "9" * 5000 + "\n", "an offset that no file has"),
        ("a x:" + "9" * 18 + "\n", "end of the stream|cannot go to byte"),
    ],
)
def test_bad_scripts(text: str, message: str) -> None:
    Path("x").write_bytes(b" [ ]\n")
    Path("y.scp").write_text(text)
    with pytest.raises(UserError, match=message):
        list(SequentialTableReader("scp:y.scp", holders.MATRIX))
    with pytest.raises(UserError, match=message):
        RandomAccessTableReader("scp:y.scp", holders.MATRIX).get("a")


def test_duplicate_keys_in_a_script() -> None:
    Path("y.scp").write_text("a x\na x\n")
    with pytest.raises(DataError, match="duplicate key 'a'"):
        RandomAccessTableReader("scp:y.scp", holders.MATRIX)


@pytest.mark.parametrize(
    "specifier", ["x.ark", "ark", "foo,ark:x", "ark,ark:x", "ark:x ", "t:x", "scp,ark:x,y", ""]
)
def test_bad_specifiers(specifier: str) -> None:
    with pytest.raises(OptionError, match="invalid rspecifier"):
        SequentialTableReader(specifier, holders.MATRIX)
    with pytest.raises(OptionError, match="invalid wspecifier"):
        TableWriter(specifier, holders.MATRIX)


@pytest.mark.parametrize("specifier", ["ark,scp:x", "ark,scp:-,x", "ark,scp:| cat,x", "o,ark:x"])
def test_bad_wspecifiers(specifier: str) -> None:
    with pytest.raises(OptionError):
        TableWriter(specifier, holders.MATRIX)


def test_an_archive_is_no_script() -> None:
    write("ark:x", matrices())
    with pytest.raises(DataError, match="x: byte 2: expected text, found binary bytes"):
        check("scp:x", matrices())


def test_missing_files() -> None:
    with pytest.raises(DataError, match="cannot open 'no/such' for reading: No such file"):
        check("ark:no/such", {})
    with pytest.raises(DataError, match="cannot open 'no/such' for writing: No such file"):
        TableWriter("ark:no/such", holders.MATRIX)
    with pytest.raises(DataError, match=r"cannot open '\.' for reading: Is a directory"):
        check("ark:.", {})


def test_failing_commands() -> None:
    write("ark:x", matrices())
    for command in ("cat x; exit 3", "cat x; false", "nosuchcommand-xyz"):
        with pytest.raises(DataError, match="ended with status"):
            check(f"ark:{command} |", matrices())
    with pytest.raises(DataError, match="before all was written"):
        write("ark:| exit 0", {str(i): np.zeros((300, 300), "f4") for i in range(20)})


def test_a_command_that_takes_all_and_then_fails_is_an_error() -> None:
    for command, status in (("exit 5", 5), ("kill -9 $$", -9)):
        with pytest.raises(DataError, match=f"ended with status {status}$"):
            write(f"ark:| cat > y; {command}", matrices())


def test_stopping_early_is_no_failure_of_the_command() -> None:
    with SequentialTableReader("ark:yes 'a 1' |", holders.INT32) as table:
        assert next(iter(table)) == ("a", 1)
    with open_input("yes |") as reader:
        assert reader.read_line() == "y"


@pytest.mark.parametrize(
    "name", [" x", "x ", "|x", "a|b", "ark:x", "scp:x.scp", "ark,t:x", "scp,p:y"]
)
def test_names_that_cannot_be_read(name: str) -> None:
    with pytest.raises(OptionError), open_input(name):
        pass


@pytest.mark.parametrize("name", [" x", "x |", "x|", "a|b", "x:5", "ark:x"])
def test_names_that_cannot_be_written(name: str) -> None:
    with pytest.raises(OptionError), open_output(name):
        pass


def test_a_name_that_only_looks_like_a_table() -> None:
    Path("spark").write_bytes(b"xxa b")
    with open_input("spark:2") as reader:
        assert reader.read_line() == "a b"


# -- outputs appear whole or not at all


class Interrupted(Exception):
    pass


def test_nothing_appears_when_writing_fails() -> None:
    Path("old").write_text("old")
    with pytest.raises(Interrupted):  # noqa: PT012
        with open_output("old") as writer:
            writer.write_text("new")
            raise Interrupted
    assert Path("old").read_text() == "old"
    with pytest.raises(Interrupted):  # noqa: PT012
        with TableWriter("ark,scp:x.ark,x.scp", holders.INT32) as table:
            table.write("a", 1)
            raise Interrupted
    with pytest.raises(DataError, match="cannot be the key"):
        write("ark:x.ark", {"a b": 1}, holders.INT32)
    assert sorted(os.listdir(".")) == ["old"]


def test_a_file_is_replaced_only_at_the_end_and_keeps_its_mode() -> None:
    Path("x").write_text("old")
    os.chmod("x", 0o640)
    os.symlink("x", "link")
    with open_output("link", binary=False) as writer, open_input("x") as reader:
        writer.write_text("new\n")
        assert reader.read_line() == "old"
    assert Path("x").read_text() == "new\n"
    assert os.path.islink("link")
    assert os.stat("x").st_mode & 0o777 == 0o640


def test_devices_and_standard_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    write("ark:/dev/null", matrices())
    code = (
        "from nnet3tools.io.table import *; from nnet3tools.io.holders import *\n"
        "with TableWriter('ark,t:-', INT32) as w:\n"
        "    for k, v in SequentialTableReader('ark:-', INT32): w.write(k, v + 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], input=b"a 1\nb 2\n", capture_output=True)
    assert done.stdout == b"a 2 \nb 3 \n"


def test_text_lines() -> None:
    Path("x").write_bytes(b"one\r\ntwo\n\nthree")
    assert read_text_lines("x") == ["one", "two", "", "three"]
    assert read_text_lines("cat x |") == ["one", "two", "", "three"]


def test_big_objects_from_a_redirected_file() -> None:
    big = np.arange(300_000, dtype="f4").reshape(3, -1)
    write("ark:x", {"a": big, "b": big})
    code = (
        "from nnet3tools.io.table import *; from nnet3tools.io.holders import *\n"
        "for k, v in SequentialTableReader('ark:-', MATRIX): print(k, v.shape, float(v[-1, -1]))\n"
    )
    for command in (f'{sys.executable} -c "{code}" < x', f'cat x | {sys.executable} -c "{code}"'):
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        assert done.stdout == "a (3, 100000) 299999.0\nb (3, 100000) 299999.0\n"
    cut = f'head -c 900000 x | {sys.executable} -c "{code}"'
    assert (
        "key 'a': byte 900000"
        in subprocess.run(cut, shell=True, capture_output=True, text=True).stderr
    )


def test_archive_and_script_in_one_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out")
    for script in ("out", "./out", "link"):
        with pytest.raises(OptionError, match="archive and script are the same file"):
            TableWriter(f"ark,scp:{tmp_path}/out,{tmp_path}/{script}", holders.TOKEN)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link"]
