"""nnet3-am-info: print information about an acoustic model."""

import sys

from nnet3tools.cli.options import NoOptions, program

USAGE = """Print information about a nnet3 acoustic model, as text on standard output.

Usage:  nnet3-am-info [options] <nnet>
e.g.:
 nnet3-am-info 0.mdl
See also: nnet3-info
"""


@program("nnet3-am-info", USAGE, NoOptions, num_args=1)
def main(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.cli.am_models import load_am_nnet
    from nnet3tools.cli.network_info import network_info

    model = load_am_nnet(args[0])
    sys.stdout.write(model.info() + network_info(model.nnet))
