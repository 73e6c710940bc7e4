"""nnet3-report: a training directory as a web page."""

from __future__ import annotations

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log

USAGE = """Writes <dir>/report.html, one page that shows what the log files of a training directory
tell: objective and accuracy, learning rates, changes of the parameters, use of the nonlinearities,
the network, time by stage. The directory may come from nnet3-train-raw-dnn, from the other training
programs here, or from Kaldi's training scripts. The training may have ended or not.

Usage:  nnet3-report [options] <dir>
e.g.:
 nnet3-report exp/tdnn
See also: nnet3-info, nnet3-show-progress, nnet3-computation-info
"""


@program("nnet3-report", USAGE, NoOptions, num_args=1)
def main(options: NoOptions, args: list[str]) -> None:
    from pathlib import Path

    from nnet3tools.recipe.report import write_report

    folder = Path(args[0])
    write_report(folder)
    log.log(f"Wrote {folder / 'report.html'}")
