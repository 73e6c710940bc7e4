"""cuda-compiled: tells by its exit status whether a GPU can be used."""

import importlib.util

from nnet3tools.cli.options import NoOptions, program

USAGE = """This program returns exit status 0 (success) if the package that computes on
GPUs (CuPy) is installed, and 1 otherwise.  Scripts ask before they use --use-gpu=yes.

Usage: cuda-compiled
e.g.: cuda-compiled || echo "install CuPy: bin/setup-env cuda12 (or cuda13)"
"""


@program("cuda-compiled", USAGE, NoOptions, num_args=0)
def main(options: NoOptions, args: list[str]) -> int:
    return 0 if importlib.util.find_spec("cupy") else 1
