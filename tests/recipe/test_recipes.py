"""egs/: the recipes run from their data to their RESULT line and print the expected lines."""

import gzip
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nnet3tools.cli import nnet3_xconfig_to_configs
from nnet3tools.nnet.arithmetic import num_parameters
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet

ROOT = Path(__file__).parents[2]
SOUND = ROOT.parent / "shared" / "data" / "fsdd"


def run(*command: object, **more: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """A copy of egs/ that runs the programs of this checkout and does not change its
    environment.
    """
    ignore = shutil.ignore_patterns("data", "exp")
    shutil.copytree(ROOT / "egs", tmp_path / "egs", symlinks=True, ignore=ignore)
    for path in tmp_path.glob("egs/*/path.sh"):
        path.unlink()
        folders = f"{ROOT / 'bin'}:{Path(sys.executable).parent}"
        path.write_text(
            f'export PATH="{folders}:$PATH" NNET3TOOLS_PYTHON="{sys.executable}" LC_ALL=C '
            "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1\n"
        )
    return tmp_path / "egs"


def result(done: subprocess.CompletedProcess[str], name: str) -> tuple[int, int]:
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = re.fullmatch(rf"RESULT {name} (\d+) (\d+)", done.stdout.splitlines()[-1])
    assert found, done.stdout[-500:]
    return int(found[1]), int(found[2])


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- whole recipes


def made_up_digits(path: Path, count: int) -> None:
    """Write images whose digit is the number of the bright column or row."""
    draws = np.random.default_rng(0)
    digits = draws.integers(10, size=count)
    images = draws.integers(4, size=(count, 8, 8))
    for image, digit in zip(images, digits, strict=True):
        image[digit % 8, :] += 12 if digit < 8 else 0
        image[:, digit % 8] += 12 if digit >= 8 else 0
    rows = np.concatenate([images.reshape(count, 64), digits[:, None]], axis=1)
    path.parent.mkdir(parents=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, rows, fmt="%d", delimiter=",")


def test_images_from_a_table_to_the_result(recipes: Path) -> None:
    folder = recipes / "digit_images"
    made_up_digits(folder / "data" / "download" / "digits.csv.gz", 150)
    done = run(folder / "run.sh", "--num-epochs", 4, "--minibatch-size=8")
    right, total = result(done, "digit_images")
    assert total == 30
    assert right >= 20
    assert "convolution, ReLU" in (folder / "exp" / "cnn" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("srand", [0, 1])
def test_spoken_digits(recipes: Path, srand: int) -> None:
    pytest.importorskip("kaldi_native_fbank", reason="the extra [recipe] is not installed")
    if not SOUND.is_dir():
        pytest.skip("no copy of the Free Spoken Digit Dataset beside the checkout")
    done = run(recipes / "fsdd" / "run.sh", "--data", SOUND, "--srand", srand)
    right, total = result(done, "fsdd")
    assert total == 300
    assert right >= 298


@pytest.mark.slow
@pytest.mark.parametrize("srand", [0, 1])
@pytest.mark.parametrize(("name", "least"), [("digit_images", 354), ("japanese_vowels", 360)])
def test_recipes_whose_data_come_from_a_registry(
    recipes: Path, name: str, least: int, srand: int
) -> None:
    done = run(recipes / name / "run.sh", "--srand", srand)
    if "pip" in done.stderr and done.returncode:
        pytest.skip("the package registry cannot be reached")
    right, total = result(done, name)
    assert total == {"digit_images": 359, "japanese_vowels": 370}[name]
    assert right >= least


# -- their pieces


@pytest.mark.parametrize(("name", "size"), [("fsdd", 148), ("digit_images", 46)])
def test_networks_are_of_the_size_that_the_pages_say(name: str, size: int, tmp_path: Path) -> None:
    folder = ROOT / "egs" / name
    file = folder / "conf" / "network.xconfig"
    assert (
        nnet3_xconfig_to_configs.main([f"--xconfig-file={file}", f"--config-dir={tmp_path}"]) == 0
    )
    nnet = Nnet.from_config(parse_config_lines((tmp_path / "final.config").read_text()))
    assert round(num_parameters(nnet) / 1000) == size
    assert f"{size},000 parameters" in (folder / "README.md").read_text()
    assert f"{size},000 parameters" in (folder / "run.sh").read_text().replace("\n# ", " ")


def test_an_unknown_option_is_refused(recipes: Path) -> None:
    for name in ("fsdd", "digit_images", "japanese_vowels"):
        done = run(recipes / name / "run.sh", "--no-such-thing", 1)
        assert done.returncode == 1
        assert "unknown option --no-such-thing" in done.stderr
        assert run(recipes / name / "run.sh", "--help").stdout.startswith(
            f"usage: egs/{name}/run.sh"
        )


def test_pages_of_recipes_name_what_there_is() -> None:
    for page in ROOT.glob("egs/*/README.md"):
        text = page.read_text()
        assert f"egs/{page.parent.name}/run.sh" in text
        for command in re.findall(r"^(egs/\S+)", text, re.M):
            assert os.access(ROOT / command, os.X_OK), command
        for option in re.findall(r"run\.sh --([a-z-]+)", text):
            variable = option.replace("-", "_")
            assert re.search(rf"^(.* )?{variable}=", (page.parent / "run.sh").read_text(), re.M)


def test_confusions_count_every_utterance_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score = load(ROOT / "egs" / "utils" / "score.py")
    (tmp_path / "labels").write_text("a 0\nb 1\nc 2\nd 1\n")
    (tmp_path / "out.ark").write_text(
        "a [\n 0 -1 -9\n -3 -1 -9 ]\nb [\n -1 0 -9 ]\nc [\n 0 -1 -2 ]\n"
    )
    score.main("toy", str(tmp_path / "out.ark"), str(tmp_path / "labels"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "RESULT toy 1 4"
    assert lines[:3] == [
        "  a: expected 0, found 1",
        "  c: expected 2, found 0",
        "  d: expected 1, found nothing",
    ]
    assert [line.split() for line in lines[4:7]] == [["0", "0", "1"], ["1", "1"], ["2", "1", "0"]]


def test_recordings_are_split_by_their_number(tmp_path: Path) -> None:
    prepare = load(ROOT / "egs" / "fsdd" / "local" / "prepare_data.py")
    for name in ("3_theo_4.wav", "3_theo_5.wav", "0_theo_49.wav", "9_lucas_0.wav", "readme.txt"):
        (tmp_path / name).touch()
    prepare.main(tmp_path, tmp_path / "out")
    train = (tmp_path / "out" / "train" / "text").read_text()
    assert train == "theo-0-49 0\ntheo-3-05 3\n"
    assert (tmp_path / "out" / "test" / "text").read_text() == "lucas-9-00 9\ntheo-3-04 3\n"
    with pytest.raises(SystemExit, match="no recordings such as"):
        prepare.main(tmp_path / "out", tmp_path / "more")


def test_sound_comes_from_a_repository_at_its_commit(tmp_path: Path) -> None:
    there = tmp_path / "there"
    git = ["git", "-C", there, "-c", "user.name=x", "-c", "user.email=x@example.org"]
    run("git", "init", "-q", there)
    (there / "recordings").mkdir()
    (there / "recordings" / "7_jackson_32.wav").write_text("sound")
    run(*git, "add", "-A")
    run(*git, "commit", "-q", "-m", "sound")
    commit = run(*git, "rev-parse", "HEAD").stdout.strip()
    (there / "recordings" / "7_jackson_33.wav").write_text("later")
    run(*git, "add", "-A")
    run(*git, "commit", "-q", "-m", "later")
    run(*git, "config", "uploadpack.allowAnySHA1InWant", "true")
    script = ROOT / "egs" / "fsdd" / "local" / "get_data.sh"
    for _ in range(2):
        done = run("bash", script, tmp_path / "here", f"file://{there}", commit)
        assert done.returncode == 0, done.stderr
        assert os.listdir(tmp_path / "here" / "recordings") == ["7_jackson_32.wav"]
    done = run("bash", script, tmp_path / "none", f"file://{tmp_path}/nowhere", commit)
    assert done.returncode == 1
    assert "give a copy of the recordings with --data" in done.stderr


def scratch_checkout(folder: Path) -> Path:
    """A recipe that sleeps, in a checkout whose bin/setup-env writes the file "installed"."""
    recipe = folder / "egs" / "toy"
    recipe.mkdir(parents=True)
    shutil.copytree(ROOT / "egs" / "utils", folder / "egs" / "utils")
    (recipe / "utils").symlink_to("../utils")
    (folder / "bin").mkdir()
    (folder / "bin" / "setup-env").write_text(f"#!/bin/sh\ntouch {folder}/installed\n")
    (recipe / "run.sh").write_text(
        "#!/usr/bin/env bash\n# usage: run.sh [--stage N]\nset -euo pipefail\n"
        'cd "$(dirname "${BASH_SOURCE[0]}")"\nstage=0\n. utils/path.sh\n. utils/parse_options.sh\n'
        "echo started\nsleep 60\n"
    )
    for script in (folder / "bin" / "setup-env", recipe / "run.sh"):
        script.chmod(0o755)
    return recipe / "run.sh"


def test_help_of_a_recipe_installs_nothing(tmp_path: Path) -> None:
    script = scratch_checkout(tmp_path)
    assert run(script, "--help").stdout == "usage: run.sh [--stage N]\n"
    assert not (tmp_path / "installed").exists()


def test_a_recipe_that_is_interrupted_says_so(tmp_path: Path) -> None:
    script = scratch_checkout(tmp_path)
    with subprocess.Popen(
        [script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as recipe:
        assert recipe.stdout is not None
        assert recipe.stdout.readline() == "started\n"
        os.killpg(recipe.pid, signal.SIGINT)  # as a terminal does
        errors = recipe.communicate(timeout=30)[1]
    assert recipe.returncode == -signal.SIGINT
    assert "run.sh: stopped; called again" in errors
    assert (tmp_path / "installed").exists()
