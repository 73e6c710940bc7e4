"""No file is opened and no program started that a case does not name, by Python, C or children."""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.fuzz_corpus import in_corpus, run
from support.watched import ROOT, Case, Forbidden, preloaded, watching

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
COMMANDS = (
    ("nnet3-copy", "cat final.raw |", "out"),
    ("nnet3-copy", "final.raw", "| cat > out"),
    ("nnet3-init", "piped.config", "out"),
    ("copy-feats", "scp:piped.scp", "ark:out"),
    ("copy-feats", "ark:cat mats.ark |", "ark:| cat > out"),
)
PIPED = "input-node name=input dim=3\ncomponent name=a type=FixedAffineComponent matrix='{}'\n\
component-node name=a component=a input=input\noutput-node name=output input=a\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with in_corpus(tmp_path_factory.mktemp("corpus")) as folder:
        Path("wide.txt").write_text(" [ 1 2 3 4\n 5 6 7 8 ]\n")
        Path("piped.config").write_text(PIPED.format("cat wide.txt |"))
        Path("piped.scp").write_text("u1 cat matrix.txt |\nu2 matrix.bin\n")
        return folder


def _started(words: tuple[str, ...]) -> set[str]:
    """The commands that a command line, or a file that it names, states."""
    texts = [*words, *(Path(w.partition(":")[2] or w).read_text() for w in words if "piped." in w)]
    lines = [line for text in texts for line in text.replace("'", "\n").splitlines()]
    found = {line.rpartition(":")[2] for line in lines if "|" in line}
    return {f"/bin/sh -c {f.removeprefix('u1 ').strip('| ')}" for f in found}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_program_starts_the_commands_that_it_was_given(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(corpus)
    names = Case.of_words(words).names
    case = Case({*names, "matrix.txt", "matrix.bin", "wide.txt"}, commands=_started(words))
    with watching(case):
        outcome = run(*words)
    assert (outcome.status, outcome.crash, case.broken) == (0, None, []), outcome.log
    with pytest.raises(Forbidden), watching(Case(case.names)):
        run(*words)


@needs_compiler
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_children_of_a_program_open_the_files_that_the_command_names(
    corpus: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    environment = preloaded(tmp_path, str(COMPILER))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [sys.executable, "-m", "nnet3tools.cli", *words]
    subprocess.run(command, cwd=corpus, env={**environment, "PATH": path}, check=True)
    calls = set(Path(environment["WATCHED_CALLS"]).read_text().splitlines())
    started = {call for call in calls if call[0] in "xc"}
    assert started == {"x /bin/sh", f"x {shutil.which('cat')}"}
    case = Case({*Case.of_words(words).names, "matrix.txt", "matrix.bin", "wide.txt", "/dev/tty"})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(corpus)
        assert not [c for c in calls - started if not case.allows(c[0], c[2:])]


@pytest.mark.parametrize(
    "act",
    [
        lambda: open("/etc/hostname"),
        lambda: open("elsewhere", "w"),
        lambda: open("known/../../elsewhere"),
        lambda: os.remove("elsewhere"),
        lambda: os.rename("known", "elsewhere"),
        lambda: os.mkdir("/tmp/elsewhere"),
        lambda: os.system("true"),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: subprocess.run(["true"]),
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: ctypes.CDLL("/usr/lib/elsewhere.so"),
    ],
)
def test_what_a_case_does_not_name_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("known").touch()
    with pytest.raises(Forbidden), watching(Case({"known"})):
        act()


@needs_compiler
@pytest.mark.slow
def test_c_code_opens_no_other_files_than_python(tmp_path: Path) -> None:
    """All readers and programs of support/fuzz_readers.py again, with C's calls recorded."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    settings = {**preloaded(tmp_path, str(COMPILER)), "NNET3TOOLS_FUZZ_INPUTS": "1"}
    done = subprocess.run(
        [*command, "tests/fuzz/test_damaged_files.py", "-k", "takes_or_refuses"],
        cwd=ROOT, env=settings, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-4000:]
    with Path(settings["WATCHED_CALLS"]).open() as calls:
        assert calls.read(), "nothing was recorded"
