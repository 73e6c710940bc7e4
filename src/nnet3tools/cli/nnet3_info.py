"""nnet3-info: print what a network consists of."""

from __future__ import annotations

import sys

from nnet3tools.cli.options import NoOptions, program

USAGE = """Print information about a 'raw' nnet3 network, as text on standard output.

Usage:  nnet3-info [options] <raw-nnet>
e.g.:
 nnet3-info 0.raw
See also: nnet3-am-info
"""


@program("nnet3-info", USAGE, NoOptions, num_args=1)
def main(options: NoOptions, args: list[str]) -> None:
    """Print the information."""
    from nnet3tools.cli.network_info import network_info
    from nnet3tools.nnet.model_file import read_nnet

    sys.stdout.write(network_info(read_nnet(args[0])))
