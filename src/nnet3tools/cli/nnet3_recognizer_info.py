"""nnet3-recognizer-info: what a model directory has and lacks for decoding."""

import sys

from nnet3tools.cli.options import program
from nnet3tools.cli.recognizing import directory_words, read_options
from nnet3tools.recognizer.options import RecognizerOptions

USAGE = """Print what a model directory has, and what is missing, for nnet3-decode. Status 1 if it
cannot decode. Options of nnet3-decode show whether the directory can decode with them.

Usage:  nnet3-recognizer-info [options] <model-dir> [<graph>]
e.g.:
 nnet3-recognizer-info exp/chain
See also: nnet3-decode, nnet3-am-info, docs/recognizer.md
"""


@program(
    "nnet3-recognizer-info", USAGE, RecognizerOptions, num_args=(1, 2), words_before=directory_words
)
def main(options: RecognizerOptions, args: list[str]) -> int:
    from nnet3tools.recognizer.inspection import inspect_directory

    options.check()
    graph = args[1] if len(args) == 2 else None
    lines, problems = inspect_directory(args[0], graph, options, read_options)
    for problem in problems:
        lines.append(f"missing: {problem}" if problem.startswith("expected") else problem)
    lines.append(f"can decode: {'no' if problems else 'yes'}")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if problems else 0
