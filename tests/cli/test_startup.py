"""Every program can be started, and starts fast: it imports no modules that it does not need."""

import functools
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nnet3tools.chain.example import CHAIN_EXAMPLE
from nnet3tools.cli.programs import PROGRAMS, entry_point_of, main_of
from nnet3tools.io.holders import MATRIX
from nnet3tools.io.table import TableWriter
from nnet3tools.nnet.model_file import write_nnet
from nnet3tools.training.example import EXAMPLE
from support.chain_examples import chain_example
from support.training_helpers import example, network

ROOT = Path(__file__).parents[2]

# Their options are declared in the modules that use them.
_TRAINING = {
    "nnet3-chain-e2e-get-egs",
    "nnet3-chain-get-egs",
    "nnet3-chain-train",
    "nnet3-chain-train2",
    "nnet3-chain-add-post-to-egs",
    "nnet3-discriminative-get-egs",
    "nnet3-discriminative-train",
    "nnet3-get-egs",
    "nnet3-get-egs-dense-targets",
    "nnet3-train",
}

FAMILY = "nnet3tools.nnet.components"


def test_a_module_in_the_working_directory_is_not_run(tmp_path: Path) -> None:
    write_nnet(network(), f"{tmp_path}/0.raw")
    for name in ("numpy", "runpy", "nnet3tools"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(7)")
    subprocess.run([ROOT / "bin/nnet3-info", "0.raw"], cwd=tmp_path, check=True)


def modules_after(code: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.split("\n")[-2].split())


def modules_of(name: str, *words: str) -> set[str]:
    """All modules that a program has imported at its end, in a new interpreter."""
    run_it = (
        f"from nnet3tools.cli.programs import main_of; status = main_of('{name}')({list(words)!r})"
    )
    return modules_after(f"{run_it}; assert status == 0")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    with TableWriter(f"ark:{folder}/egs", EXAMPLE) as writer:
        for seed in range(3):
            writer.write(f"utt{seed}", example(seed=seed))
    with TableWriter(f"ark:{folder}/cegs", CHAIN_EXAMPLE) as writer:
        for i in range(3):
            writer.write(f"utt{i}", chain_example(i, False))
    write_nnet(network(), f"{folder}/0.raw")
    (folder / "feats").write_text("a  [\n  1 2\n  3 4 ]\n")
    with TableWriter(f"ark,scp:{folder}/feats.ark,{folder}/feats.scp", MATRIX) as writer:
        writer.write("a", np.ones((4, 2), np.float32))
    return folder


@functools.cache
def modules_of_numpy() -> set[str]:
    """The modules that NumPy imports itself; before version 2 nearly all of NumPy."""
    return modules_after("import numpy")


@pytest.mark.parametrize("names", [sorted(set(PROGRAMS) - _TRAINING)])
def test_command_lines_are_read_without_numpy(names) -> None:
    loaded = modules_after(f"import {', '.join(entry_point_of(name)[0] for name in names)}")
    assert not loaded & {"numpy", "pyparsing", "click"}


@pytest.mark.parametrize(
    "words",
    [
        ("nnet3-copy-egs", "ark:egs", "ark:out"),
        ("nnet3-shuffle-egs", "ark:egs", "ark:out"),
        ("nnet3-shuffle-egs", "--buffer-size=2", "ark:egs", "ark:out"),
        ("nnet3-subset-egs", "--n=2", "ark:egs", "ark:out"),
        ("nnet3-chain-copy-egs", "ark:cegs", "ark:out"),
        ("nnet3-chain-shuffle-egs", "ark:cegs", "ark:out"),
        ("nnet3-chain-subset-egs", "--n=2", "ark:cegs", "ark:out"),
        ("nnet3-copy-egs", "--random=true", "--keep-proportion=0.9", "ark:egs", "ark:1", "ark:2"),
        ("copy-feats", "ark:feats.ark", "ark:out"),
        ("copy-feats", "scp:feats.scp", "ark,scp:out,out.scp"),
    ],
)
def test_examples_and_features_pass_as_bytes_without_numpy(files, words, monkeypatch) -> None:
    monkeypatch.chdir(files)
    loaded = modules_of(*words)
    assert not loaded & {"numpy", "pyparsing", "nnet3tools.tensor", "nnet3tools.training.example"}
    assert not loaded & {"click", "inspect", "dataclasses", "subprocess", "pathlib", "queue"}


@pytest.mark.parametrize(
    "words",
    [
        ("nnet3-copy", "0.raw", "out"),
        ("nnet3-info", "0.raw"),
        ("nnet3-average", "0.raw", "0.raw", "out"),
        ("copy-feats", "ark:feats", "ark:out"),
        ("feat-to-dim", "ark:feats", "-"),
        ("matrix-sum", "ark:feats", "ark:feats", "ark:out"),
    ],
)
def test_small_files_are_copied_without_parsers_and_random_numbers(
    files, words, monkeypatch
) -> None:
    monkeypatch.chdir(files)
    loaded = modules_of(*words)
    assert not loaded & {"pyparsing", "click", "nnet3tools.executor"}
    assert not loaded & ({"numpy.random"} - modules_of_numpy())
    # The model has affine, rectified linear, batch norm and log-softmax components.
    unused = {"convolution", "lstm", "gru", "attention", "tdnn", "expression", "dropout"}
    assert not loaded & {f"{FAMILY}.{name}" for name in unused}
    assert not any(name.startswith("nnet3tools.tensor.cupy") for name in loaded)


@pytest.mark.parametrize(
    ("words", "is_imported"),
    [
        (("nnet3-merge-egs", "--minibatch-size=3", "ark:egs", "ark:out"), False),
        (("nnet3-merge-egs", "--minibatch-size=1:3", "ark:egs", "ark:out"), True),
        (("nnet3-copy", "--learning-rate=0.1", "0.raw", "out"), False),
        (("nnet3-copy", "--edits=remove-orphans", "0.raw", "out"), True),
    ],
)
def test_grammars_are_imported_for_text_of_users_only(
    files, words, is_imported, monkeypatch
) -> None:
    monkeypatch.chdir(files)
    assert ("pyparsing" in modules_of(*words)) == is_imported


def test_changes_of_parameters_are_shown_without_what_computes(files) -> None:
    loaded = modules_of("nnet3-show-progress", f"{files}/0.raw", f"{files}/0.raw")
    assert not loaded & {"nnet3tools.executor.computer", "nnet3tools.optimizer.pipeline"}


def test_the_first_minibatch_is_reached_without_what_it_does_not_need(files) -> None:
    loaded = modules_of("nnet3-train", f"{files}/0.raw", f"ark:{files}/egs", f"{files}/out")
    assert not loaded & {"numpy.testing", "pyparsing", "nnet3tools.chain"}
    assert not loaded & ({"numpy.random", "json"} - modules_of_numpy())
    assert "nnet3tools.tensor.cpu.library" not in loaded  # nothing runs a third time
    assert not loaded & {f"{FAMILY}.{name}" for name in ("convolution", "lstm", "attention")}


@pytest.mark.parametrize("environment_is_there", [True, False])
def test_a_program_of_the_checkout_is_one_interpreter(tmp_path, environment_is_there) -> None:
    """bin/_run must not start Python twice; a fake python3 counts its starts."""
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "bin/_run", tmp_path / "bin/_run")
    (tmp_path / "bin/nnet3-copy").symlink_to("_run")
    python = tmp_path / (".venv/bin/python" if environment_is_there else "path/python3")
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\necho started >> "{tmp_path}/count"\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    if environment_is_there:
        (tmp_path / ".venv/.nnet3tools-installed").touch()
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
    environment.pop("NNET3TOOLS_PYTHON", None)
    command = [str(tmp_path / "bin/nnet3-copy"), "--help"]
    for _ in range(2):
        (tmp_path / "count").unlink(missing_ok=True)
        subprocess.run(command, env=environment, check=True, capture_output=True)
    assert (tmp_path / "count").read_text() == "started\n"


@pytest.mark.parametrize("called", ["by link", "in a linked folder", "relative", "on PATH"])
def test_the_checkout_is_found_however_a_program_is_called(tmp_path, called) -> None:
    (tmp_path / "nnet3-copy").symlink_to(ROOT / "bin/nnet3-copy")
    (tmp_path / "bin").symlink_to(ROOT / "bin")
    (tmp_path / "sub").mkdir()
    word, folder = {
        "by link": (tmp_path / "nnet3-copy", tmp_path),
        "in a linked folder": (tmp_path / "bin/nnet3-copy", tmp_path),
        "relative": ("../bin/nnet3-copy", tmp_path / "sub"),
        "on PATH": ("nnet3-copy", tmp_path),
    }[called]
    environment = {**os.environ, "PATH": f"{ROOT / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    words = ["bash", "-c", f"'{word}' --version"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.stdout.startswith("nnet3-copy (nnet3tools"), done.stderr


def test_entry_points_are_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=given.update))
    runpy.run_path(str(ROOT / "setup.py"), run_name="__main__")
    scripts = {
        "console_scripts": [f"{name} = {':'.join(entry_point_of(name))}" for name in PROGRAMS]
    }
    assert given["entry_points"] == scripts
    assert {"nnet3-train", "nnet3-am-adjust-priors"} < set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_bin_has_the_program(name: str) -> None:
    link = ROOT / "bin" / name
    assert os.readlink(link) == "_run"
    assert os.access(link, os.X_OK)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_names_the_program_and_an_example(name: str) -> None:
    line = main_of(name).command_line
    text = line.help()
    assert line.name == name
    assert f"{name} " in text
    assert "e.g.:" in text
    for option in line.specs:
        assert f"  --{option}" in text.lower()


def dispatch(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "nnet3tools.cli", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_dispatcher_names_the_nearest_program() -> None:
    done = dispatch("nnet3-cpy")
    assert done.returncode == 1
    assert "did you mean nnet3-copy?" in done.stderr
    assert dispatch().returncode == 1


def test_help_does_not_load_what_it_does_not_need() -> None:
    code = (
        "import sys; from nnet3tools.cli.options import program, NoOptions\n"
        "program('x', 'u', NoOptions, num_args=0)(lambda o, a: 0)(['--help'])\n"
        "assert not {'cupy', 'pyparsing', 'nnet3tools.nnet'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
