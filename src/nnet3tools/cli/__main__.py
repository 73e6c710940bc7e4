"""`python -m nnet3tools.cli <program> ...`, which the scripts in bin/ call.

`python -m nnet3tools <program> ...` is the same.
"""

import gc
import signal
import sys

# Before a program installs its handler, Ctrl-C ends the process silently. bin/_run blocks the
# signal until here.
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

if __name__ == "__main__":
    gc.disable()  # until run_program: imports leave no garbage, and a collection takes 5 ms

from nnet3tools.cli.programs import PROGRAMS, main_of
from nnet3tools.cli.standard_streams import take_standard_streams


def main() -> int:
    """Run the program that the first command-line word names; imports only its module."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in ("--help", "--version"):
        from nnet3tools import __version__

        take_standard_streams()
        programs = f"usage: python -m nnet3tools <program> ...\nprograms: {' '.join(PROGRAMS)}"
        print(programs if name == "--help" else f"nnet3tools {__version__}", flush=True)
        return 0
    if name not in PROGRAMS:
        import difflib

        near = difflib.get_close_matches(name, PROGRAMS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        problem = f"unknown program '{name}'{hint}" if name else "no program named"
        take_standard_streams()
        sys.stderr.write(f"ERROR (nnet3tools) {problem}; --help lists the programs\n")
        return 1
    program = main_of(name)
    gc.freeze()  # excludes the loaded modules from later collections
    return int(program(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
