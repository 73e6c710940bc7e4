"""Kaldi's command-line syntax, and one-line messages for all errors."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnet3tools import __version__
from nnet3tools.cli.device_options import DeviceOptions
from nnet3tools.cli.gpu import choose_device
from nnet3tools.cli.gpu_faults import NoGpuError
from nnet3tools.cli.options import (
    CommandLine,
    NoOptions,
    OptionGroup,
    option,
    option_group,
    program,
    quote,
)
from nnet3tools.cli.programs import PROGRAMS, main_of
from nnet3tools.errors import ConfigError, DataError, OptionError, ProgramError, UserError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io import log


@dataclass(frozen=True)
class Inner:
    max_deriv_time: int = field(default=100, metadata={"help": "A time"})
    secret: bool = field(default=True, metadata={"hidden": True})


@dataclass(frozen=True)
class Trainer:
    momentum: float = option(0.0, "A momentum")
    srand: int = option(1, "Shared seed")
    optimization: Inner = field(default_factory=Inner)


@dataclass(frozen=True)
class Options:
    binary: bool = option(True, "Write output in binary mode")
    srand: int = option(1, "Shared seed")
    learning_rate: float = option(-1.0, "A rate")
    edits: str = option("", "Some edits")
    trainer: Trainer = option_group("", Trainer)
    own: Inner = option_group("my.own", Inner)


USAGE = "Do things\n\nUsage:  nnet3-toy [options] <in> <out>\ne.g.:\n nnet3-toy a b\n"


def run(*words: str, num_args: int | tuple = (0, None)) -> tuple[int, Options, list[str]]:
    seen: list = []

    @program("nnet3-toy", USAGE, Options, num_args=num_args)
    def main(options: Options, args: list[str]) -> None:
        seen[:] = [options, args]

    status = main(list(words))
    return (status, *(seen or [None, None]))


def test_defaults_and_values() -> None:
    assert run()[1] == Options()
    status, options, args = run(
        "--binary=false",
        "--learning-rate=1e-3",
        "--edits=set x; remove y",
        "--momentum=0.5",
        "--optimization.max-deriv-time=-3",
        "--my.own.max-deriv-time=7",
        "a",
        "b",
    )
    assert status == 0
    assert args == ["a", "b"]
    assert options == Options(
        binary=False,
        learning_rate=1e-3,
        edits="set x; remove y",
        trainer=Trainer(momentum=0.5, optimization=Inner(max_deriv_time=-3)),
        own=Inner(max_deriv_time=7),
    )


@pytest.mark.parametrize(
    ("word", "expected"),
    [("", True), ("=true", True), ("=T", True), ("=1", True), ("=False", False), ("=f", False),
     ("=0", False)],
)  # fmt: skip
def test_flags(word: str, expected: bool) -> None:
    assert run(f"--binary{word}")[1].binary is expected


def test_an_option_that_two_groups_have_goes_to_both() -> None:
    options = run("--srand=5")[1]
    assert (options.srand, options.trainer.srand) == (5, 5)


def test_underscores_and_case_are_forgiven() -> None:
    assert run("--Learning_Rate=2")[1].learning_rate == 2.0
    assert run("--edits=A_b")[1].edits == "A_b"
    assert run("--edits=")[1].edits == ""
    assert run("--edits=a=b")[1].edits == "a=b"


def test_the_first_argument_ends_the_options() -> None:
    _, options, args = run("a", "--binary=false", "-x")
    assert options.binary
    assert args == ["a", "--binary=false", "-x"]
    _, options, args = run("--binary=false", "--", "--srand=3", "--")
    assert (options.binary, options.srand) == (False, 1)
    assert args == ["--srand=3", "--"]
    assert run("-", "--", "b")[2] == ["-", "b"]


def test_config_files(tmp_path: Path) -> None:
    config = tmp_path / "c"
    config.write_text("# comment\n\n--learning_rate=3 # more\n--binary=f\n --srand=4\n--binary\n")
    options = run(f"--config={config}", "--srand=9")[1]
    assert (options.learning_rate, options.binary, options.srand) == (3.0, True, 9)
    other = tmp_path / "d"
    other.write_text("--srand=5\n")
    assert run("--srand=9", f"--config={other}")[1].srand == 9
    assert run(f"--config={config}", f"--config={other}")[1].srand == 5


def test_last_value_wins() -> None:
    assert run("--srand=1", "--srand=2")[1].srand == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bogus=1"], "Invalid option --bogus=1: no option --bogus"),
        (["--learning-rat"], "(did you mean --learning-rate?)"),
        (["--=1"], "no key"),
        (["--edits", "x"], "option format is --x=y"),
        (["--srand"], "option format is --x=y"),
        (["--binary="], "option format is --x=y"),
        (["--srand=x"], "expected an integer, found 'x'"),
        (["--srand=1.5"], "expected an integer"),
        (["--srand=3000000000"], "32-bit"),
        (["--momentum=x"], "expected a number, found 'x'"),
        (["--binary=x"], "expected true or false, found 'x'"),
    ],
)
def test_wrong_options(words: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert run(*words)[0] == 255
    err = capsys.readouterr().err
    assert USAGE in err
    last = err.splitlines()[-1]
    assert last.startswith("ERROR (nnet3-toy[")
    assert message in last


def test_wrong_lines_in_a_config_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    config = tmp_path / "c"
    for line, problem in (
        ("srand=2", "expected --option=value, found 'srand=2'"),
        ("--sramd=1", "Invalid option --sramd=1: no option --sramd"),
        ("--srand=x", "Invalid value for '--srand': expected an integer, found 'x'"),
    ):
        config.write_text(f"\n{line}\n")
        assert run(f"--config={config}")[0] == 255
        (error,) = capsys.readouterr().err.splitlines()  # without 60 lines of usage
        assert f"{config}: line 2: {problem}" in error
    assert run("--config=/no/such")[0] == 255
    (error,) = capsys.readouterr().err.splitlines()
    assert "cannot open '/no/such' for reading: No such file or directory" in error


@pytest.mark.parametrize("words", [["a"], ["a", "b", "c", "d"]])
def test_wrong_number_of_arguments_shows_the_usage(words, capsys) -> None:
    assert run(*words, num_args=(2, 3))[0] == 1
    assert USAGE in capsys.readouterr().err
    assert run("a", "b", num_args=2)[0] == 0


@pytest.mark.parametrize(
    ("num_args", "expected"),
    [
        (2, "2 arguments"),
        (0, "0 arguments"),
        (3, "3 arguments"),
        ((2, 3), "2 to 3 arguments"),
        ((2, None), "at least 2 arguments"),
    ],
)
def test_wrong_number_of_arguments_says_what_was_expected_last(num_args, expected, capsys) -> None:
    assert run("a", num_args=num_args)[0] == 1
    shown = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("LOG")]
    assert shown[-1] == f"nnet3-toy: expected {expected}, found 1"
    assert not any(line.startswith("Standard options") for line in shown)


@pytest.mark.parametrize(
    "words",
    [
        ["nnet3-info", "{}"],
        ["nnet3-init", "{}", "out"],
        ["nnet3-copy-egs", "ark:{}", "ark:out"],
        ["copy-feats", "ark:{}", "ark:out"],
        ["copy-matrix", "{}", "out"],
        ["nnet3-copy", "--config={}", "a", "b"],
        ["ali-to-post", "ark:{}", "ark:out"],
        ["wav-to-duration", "ark:{}", "ark:out"],
    ],
)
def test_binary_bytes_are_called_so_and_not_shown(words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("junk").write_bytes(b"\x7fELF\2\1\1\0\0\xd0\xff_junk\n\0\xfe" * 20)
    name, *rest = [word.format("junk") for word in words]
    assert main_of(name)(rest) == 255
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"ERROR ({name}")
    assert "junk:" in last
    assert last.endswith(("found binary bytes", "found binary bytes (not an archive?)"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_tells_its_version(name, capsys) -> None:
    assert main_of(name)(["--version"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{name} (nnet3tools {__version__})\n"
    assert captured.err == ""


def test_programs_run_by_the_packages_name() -> None:
    command = [sys.executable, "-m", "nnet3tools", "nnet3-copy", "--version"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == f"nnet3-copy (nnet3tools {__version__})\n"
    listed = subprocess.run([*command[:3], "--help"], capture_output=True, text=True, check=True)
    assert listed.stdout.split()[-len(PROGRAMS) :] == list(PROGRAMS)
    unknown = subprocess.run([*command[:3], "nnet3-copi"], capture_output=True, text=True)
    assert unknown.returncode == 1
    assert "did you mean nnet3-copy?" in unknown.stderr


def test_help_has_kaldis_layout(capsys: pytest.CaptureFixture) -> None:
    assert run("x", "--help")[0] == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"\n{USAGE}\nOptions:\n"
        "  --binary                    : Write output in binary mode (bool, default = true)\n"
        '  --edits                     : Some edits (string, default = "")\n'
        "  --learning-rate             : A rate (float, default = -1)\n"
        "  --momentum                  : A momentum (float, default = 0)\n"
        "  --my.own.max-deriv-time     : A time (int, default = 100)\n"
        "  --optimization.max-deriv-time : A time (int, default = 100)\n"
        "  --srand                     : Shared seed (int, default = 1)\n"
        "\nStandard options:\n"
        "  --config                    : Configuration file to read (this option may be repeated)"
        ' (string, default = "")\n'
        "  --help                      : Print out usage message (bool, default = false)\n"
        "  --no-commands               : Refuse files that are shell commands ('command |')"
        " (bool, default = false)\n"
        "  --print-args                : Print the command line arguments (to stderr)"
        " (bool, default = true)\n"
        "  --verbose                   : Verbose level (higher->more logging) (int, default = 0)\n"
        "  --version                   : Print the version of nnet3tools (bool, default = false)\n"
        "\n"
    )


def test_arguments_are_printed_so_that_they_can_be_pasted(capsys) -> None:
    run("--edits=a b", "it's", "$x'")
    assert capsys.readouterr().err == "nnet3-toy '--edits=a b' \"it's\" '$x'\\''' \n"
    run("--print-args=false", "a")
    assert capsys.readouterr().err == ""
    assert quote("") == "''"


def test_verbose_level(capsys: pytest.CaptureFixture) -> None:
    run("--verbose=2", "--print-args=false")
    log.vlog(2, "shown")
    log.vlog(3, "hidden")
    log.log("information")
    log.warning("careful")
    run("--print-args=false")
    log.vlog(1, "hidden")
    lines = capsys.readouterr().err.splitlines()
    where = "test_verbose_level():test_options.py:"
    assert [line.split(where)[0].split("[")[0] for line in lines] == [
        "VLOG", "LOG (nnet3-toy", "WARNING (nnet3-toy",
    ]  # fmt: skip
    assert lines[0].endswith(") shown")
    assert lines[0].startswith("VLOG[2] (nnet3-toy[")
    assert all(where in line for line in lines)


# -- how a program ends


def status_of(error: BaseException | None, result: int | None = None) -> int:
    @program("nnet3-toy", USAGE, NoOptions, num_args=0)
    def main(options: NoOptions, args: list[str]) -> int | None:
        if error is not None:
            raise error
        return result

    return main(["--print-args=false"])


@pytest.mark.parametrize(
    "error",
    [
        DataError("x: byte 3: bad"),
        ConfigError("bad", "f", 3, "line\nbroken"),
        OptionError("bad specifier"),
        MemoryError(),
        OSError(28, "No space left on device"),
    ],
)
def test_user_errors_are_one_line(error: Exception, capsys: pytest.CaptureFixture) -> None:
    assert status_of(error) == 255
    err = capsys.readouterr().err
    assert err.startswith("ERROR (nnet3-toy[")
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_bugs_show_where(capsys: pytest.CaptureFixture) -> None:
    assert status_of(ProgramError("command c3")) == 255
    assert "Traceback" in capsys.readouterr().err


def test_statuses() -> None:
    assert status_of(None) == 0
    assert status_of(None, 3) == 3
    assert status_of(KeyboardInterrupt()) == 130


SCRIPT = """
import sys
from nnet3tools.cli.options import *
from nnet3tools.io.files import open_output
@program("toy", "usage", NoOptions, num_args=(0, None))
def main(options, args):
    with open_output("out") as writer:
        writer.write_text("part")
        {body}
sys.exit(main(["--print-args=false"]))
"""


def start(body: str, folder: Path, **keywords) -> subprocess.Popen:
    code = SCRIPT.format(body=body)
    return subprocess.Popen([sys.executable, "-c", code], cwd=folder, **keywords)


def test_a_reader_that_went_away_is_no_news(tmp_path: Path) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start("[print('x' * 100000) for _ in range(100)]", tmp_path, **pipes)
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr.read() == b""
    process.stderr.close()
    assert os.listdir(tmp_path) == []


def test_termination_removes_what_is_unfinished(tmp_path: Path) -> None:
    body = "print(flush=True); import time; time.sleep(60)"
    process = start(body, tmp_path, stdout=subprocess.PIPE)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert process.wait() == 143
    assert time.monotonic() - began < 30
    process.stdout.close()
    assert os.listdir(tmp_path) == []


# -- --use-gpu


def device(*words: str) -> int:
    @program("toy", USAGE, DeviceOptions, num_args=0)
    def main(options: DeviceOptions, args: list[str]) -> None:
        assert options.choose().size == 0

    return main([*words, "--print-args=false"])


def test_use_gpu_without_one(monkeypatch, capsys: pytest.CaptureFixture) -> None:
    def fail() -> None:
        raise NoGpuError("none here", "buy one")

    monkeypatch.setattr("nnet3tools.cli.gpu._open_gpu", fail)
    assert device("--use-gpu=no") == 0
    assert capsys.readouterr().err == ""
    for words in ([], ["--use-gpu=optional"]):
        assert device(*words) == 0
        assert "WARNING" in capsys.readouterr().err
    for value in ("yes", "wait"):
        assert device(f"--use-gpu={value}") == 255
        err = capsys.readouterr().err
        assert err.endswith(f"--use-gpu={value}: no usable GPU (none here; buy one)\n")
        assert err.count("\n") == 1
    assert device("--use-gpu=maybe") == 255
    assert "expected yes|no|optional|wait" in capsys.readouterr().err
    with pytest.raises(UserError):
        choose_device("yes")
    assert device("--help") == 0
    assert 'default = "yes"' in capsys.readouterr().err


def test_an_option_with_a_value_for_its_bare_form_needs_none():
    class Options(OptionGroup):
        show: str = option("", "What to show", bare="all")

    line = CommandLine("p", "", Options, 0)
    for words, value in (([], ""), (["--show"], "all"), (["--show=x"], "x")):
        assert line.parse(words)[0].show == value
    with pytest.raises(OptionError):
        line.parse(["--config"])
