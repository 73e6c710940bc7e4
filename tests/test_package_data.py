"""The wheel has every file that the package reads."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_file_of_the_package_is_in_its_data():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    package = ROOT / "src/nnet3tools"
    patterns = settings["tool"]["setuptools"]["package-data"]["nnet3tools"]
    known = {path for pattern in patterns for path in package.glob(pattern)}
    files = (path for path in package.rglob("*") if path.is_file())
    assert {path for path in files if path.suffix not in (".py", ".pyc")} <= known
