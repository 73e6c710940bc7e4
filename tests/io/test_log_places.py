"""Kaldi's scripts search logs for Kaldi's functions and files: the table's entries must exist."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nnet3tools
from nnet3tools.io import log, log_places

SOURCE = Path(nnet3tools.__file__).parent


def _functions_that_log() -> set[tuple[str, str]]:
    found = set()
    for path in SOURCE.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and any(map(_logs, ast.walk(function))):
                found.add((str(path.relative_to(SOURCE)), function.name))
    return found


def _logs(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return re.fullmatch(r"log(\.(log|warning|vlog))?", ast.unparse(node.func)) is not None


def test_table_names_only_functions_that_log() -> None:
    named = {*log_places._PLACES, *log_places._OWN_PLACES}
    assert named <= {f"{path[:-3]} {function}" for path, function in _functions_that_log()}


def test_places_are_a_kaldi_function_and_file() -> None:
    for place in log_places._PLACES.values():
        text = place.format(program="p", trainer="T", trainer_file="f")
        assert re.fullmatch(r"~?\w+ [\w-]+", text), place


@pytest.mark.parametrize(
    ("module", "function", "program", "expected"),
    [
        ("cli/nnet3_copy.py", "main", "nnet3-copy", "main():nnet3-copy.cc"),
        ("cli/data/copy_feats.py", "convert", "copy-feats", "main():copy-feats.cc"),
        (
            "training/diagnostics.py",
            "print_objective",
            "nnet3-compute-prob",
            "PrintTotalStats():nnet-diagnostics.cc",
        ),
        (
            "optimizer/cache_files.py",
            "save_cache",
            "nnet3-chain-train",
            "~NnetChainTrainer():nnet-chain-training.cc",
        ),
        ("optimizer/cache_files.py", "load_cache", "nnet3-compute", "main():nnet3-compute.cc"),
        ("cli/progress.py", "step", "nnet3-train", "step():progress.py"),
        ("cli/x.py", "main", "nnet3-computation-info", "main():x.py"),
        ("optimizer/pipeline.py", "_log_step", "nnet3-train", "_log_step():pipeline.py"),
    ],
)
def test_place(module: str, function: str, program: str, expected: str) -> None:
    assert log_places.place(f"/a/nnet3tools/{module}", function, program) == expected


def test_lines_have_kaldis_form(capsys: pytest.CaptureFixture[str]) -> None:
    from nnet3tools.training.reporting import ObjectiveTotals

    log.set_program("nnet3-train")
    ObjectiveTotals().print_total("output")
    first = capsys.readouterr().err.splitlines()[0]
    head = r"LOG \(nnet3-train\[[^]]+\]:PrintTotalStats\(\):nnet-training\.cc:\d+\) Overall "
    assert re.match(head, first), first


def test_table_is_not_loaded_by_programs_that_log_nothing() -> None:
    code = "import sys; import nnet3tools.io.log; print('nnet3tools.io.log_places' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False"


def test_debugging_measures_nothing_in_compressed_matrices() -> None:
    import numpy as np

    from nnet3tools.executor.debugging import root_mean_square

    assert root_mean_square(np.full((3, 4), 2, np.uint8)) == 0.0
    assert root_mean_square(np.full((3, 4), 2, np.float32)) == 2.0
