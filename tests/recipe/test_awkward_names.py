"""Names of directories that a shell, a specifier or an option reader could take for more."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnet3tools.recipe.jobs import Job, pipe_text
from support import tiny_training
from support.awkward_names import AWKWARD, REFUSED, SHELL, WORK


def train(name: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    """A training whose directory, data and targets are below `name` in the working directory."""
    program = [sys.executable, "-m", "nnet3tools.cli", "nnet3-train-raw-dnn"]
    given = (f"--dir={name}", f"--feat-dir={name}/data", f"--targets-scp={name}/targets.scp")
    words = [*program, *tiny_training.OPTIONS, *given, *options]
    return subprocess.run(list(map(os.fsencode, words)), stderr=subprocess.PIPE, check=False)


def prepare(name: str) -> None:
    """Make data, targets and configs below `name`."""
    Path(name).mkdir(parents=True)
    tiny_training.make_dir(Path(name))
    for path in ("data", "targets.scp", "targets.ark"):
        os.rename(path, f"{name}/{path}")
    for script in ("data/feats.scp", "data/cmvn.scp", "targets.scp"):
        lines = [line.split(b" ") for line in Path(name, script).read_bytes().splitlines()]
        moved = (b"%s %s/%s\n" % (key, os.fsencode(name), path) for key, path in lines)
        Path(name, script).write_bytes(b"".join(moved))


@pytest.mark.parametrize(
    "name",
    ["$(touch OWNED);'", *(pytest.param(n, marks=pytest.mark.slow) for n in (*SHELL, *WORK))],
    ids=lambda name: name.encode("unicode_escape", "surrogateescape").decode(),
)
def test_a_name_reaches_no_shell(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_training.make_data(tmp_path)
    prepare(name)
    run = train(name)
    assert run.returncode == 0, run.stderr.decode()
    assert Path(name, "final.raw").exists()
    assert not list(tmp_path.rglob("OWNED"))


@pytest.mark.parametrize("name", REFUSED, ids=ascii)
def test_a_name_that_fits_no_specifier_is_refused_first(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_training.make_data(tmp_path)
    prepare(name)
    run = train(name)
    error = run.stderr.decode(errors="surrogateescape").splitlines()[-1]
    assert run.returncode == 255
    assert error.startswith("ERROR (")
    assert "--dir=" in error
    assert not {"egs", "log"} & set(os.listdir(name))


@pytest.mark.parametrize("option", ["feat.cmvn-opts", "image.augmentation-opts"])
def test_options_of_other_programs_reach_no_shell(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_training.make_data(tmp_path)
    prepare("x")
    assert train("x", (f"--{option}=$(touch OWNED)",)).returncode == 255
    assert b"No closing quotation" in train("x", (f"--{option}='",)).stderr
    assert not list(tmp_path.rglob("OWNED"))


@pytest.mark.parametrize("word", [*AWKWARD, "a b$(c)", 'a "b" c', "a \"b' `c`", ""])
def test_words_survive_shell_and_run_pl(word: str) -> None:
    show = ("printf", "%s\\n", word)
    expected = os.fsencode(word) + b"\n"
    piped = os.fsencode(pipe_text(show).removesuffix("|"))
    assert subprocess.run(["bash", "-c", piped], stdout=subprocess.PIPE).stdout == expected
    # run.pl: words without white space as they are, others in double or single quotes.
    joined = []
    for given in Job("log", ((show,),)).words:
        plain = given and not any(char.isspace() for char in given)
        joined.append(given if plain else f"'{given}'" if '"' in given else f'"{given}"')
    text = os.fsencode(" ".join(joined))
    assert subprocess.run(["bash", "-c", text], stdout=subprocess.PIPE).stdout == expected


ALLOWED = {
    "io/files.py": 1,  # opens the pipes of rxfilenames and wxfilenames
    "recipe/jobs.py": 2,  # quotes
    "recipe/speech/stages.py": 1,  # names a constant folder and a number
}
"""Places that run or join shell text, by file."""


def joins_shell_text(node: ast.AST) -> bool:
    """Whether a node passes `shell=`, or joins text that begins or ends a pipe."""
    if isinstance(node, ast.keyword):
        return node.arg == "shell"
    parts: list[ast.expr] = []
    if isinstance(node, ast.JoinedStr):
        parts = node.values
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    texts = [part.value if isinstance(part, ast.Constant) else "" for part in parts]
    texts = [text.strip() for text in texts if isinstance(text, str)]
    return bool(texts) and (texts[0].startswith(("|", "ark:|")) or texts[-1].endswith("|"))


def test_shell_text_is_joined_in_one_place() -> None:
    root = Path(__file__).parents[2] / "src/nnet3tools"
    found: dict[str, int] = {}
    for path in root.rglob("*.py"):
        count = sum(map(joins_shell_text, ast.walk(ast.parse(path.read_text()))))
        if count:
            found[str(path.relative_to(root))] = count
    assert found == ALLOWED
