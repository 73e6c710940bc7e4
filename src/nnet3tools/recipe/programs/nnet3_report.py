"""nnet3-report: a training directory as a web page and pictures."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from nnet3tools.cli.options import option, program
from nnet3tools.errors import install_command
from nnet3tools.io import log

USAGE = """Writes <dir>/report.html, one page that shows what the log files of a training directory
tell: objective and accuracy, learning rates, changes of the parameters, use of the nonlinearities,
the network, time by stage. The directory may come from nnet3-train-raw-dnn and its like or from
Kaldi's own training scripts, finished or not. Beside the page come its curves as report.*.png, if
matplotlib is installed (extra "recipe").

Usage:  nnet3-report [options] <dir>
e.g.:
 nnet3-report exp/tdnn
See also: nnet3-info, nnet3-show-progress, nnet3-computation-info
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-report."""

    pictures: bool = option(True, "If true, write the curves as PNG files, too.")


@program("nnet3-report", USAGE, Options, num_args=1)
def main(options: Options, args: list[str]) -> None:
    """Write page and pictures."""
    from pathlib import Path

    from nnet3tools.recipe.report import write_report
    from nnet3tools.recipe.report.plots import write_pictures

    folder = Path(args[0])
    write_report(folder)
    log.log(f"Wrote {folder / 'report.html'}")
    if not options.pictures:
        return
    if importlib.util.find_spec("matplotlib") is None:
        log.log(f"No pictures, as matplotlib is not installed: {install_command('recipe')}")
        return
    for path in write_pictures(folder):
        log.log(f"Wrote {path}")
