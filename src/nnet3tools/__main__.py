"""`python -m nnet3tools <program> ...` runs a program, also where none is on PATH."""

import sys

from nnet3tools.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
