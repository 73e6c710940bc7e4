"""The wheel has every file that the package reads."""

import ast
import sys
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


_KNOWN = {
    "nnet3tools", "numpy", "click", "pyparsing", "cupy", "cupy_backends", "pynvml", "onnx",
    "kaldi_native_fbank", "matplotlib", "soundfile", "websockets",
}  # fmt: skip
"""Modules of the package and of its dependencies, those of extras included."""
_OF_OTHER_PYTHONS = {"_sha2", "_sha256"}
"""Modules of the standard library of some versions of Python, imported if they are there."""


def test_every_imported_module_belongs_to_a_dependency():
    """No machine of the tests has a GPU, so only this test sees the names of CuPy's modules."""
    found = set[str]()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    assert found - sys.stdlib_module_names - _OF_OTHER_PYTHONS <= _KNOWN
