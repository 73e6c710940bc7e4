"""Programs start quickly: a command line is read before what computes is loaded."""

import subprocess
import sys

import pytest

from nnet3tools.cli.programs import PROGRAMS, module_of

# Their options are declared beside what they belong to.
_TRAINING = {
    "nnet3-chain-e2e-get-egs",
    "nnet3-chain-get-egs",
    "nnet3-chain-merge-egs",
    "nnet3-compute-prob",
    "nnet3-get-egs",
    "nnet3-get-egs-dense-targets",
    "nnet3-merge-egs",
    "nnet3-show-progress",
    "nnet3-train",
}


@pytest.mark.parametrize("names", [sorted(set(PROGRAMS) - _TRAINING)])
def test_command_lines_are_read_without_numpy(names):
    modules = ", ".join(map(module_of, names))
    code = f"import sys, {modules}; print(*[m for m in ('numpy', 'pyparsing') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
