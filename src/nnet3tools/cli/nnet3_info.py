"""nnet3-info: print information about a network."""

import sys

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.errors import naming

USAGE = """Print information about a 'raw' nnet3 network, as text on standard output.

Usage:  nnet3-info [options] <raw-nnet>
e.g.:
 nnet3-info 0.raw
See also: nnet3-am-info
"""


@program("nnet3-info", USAGE, NoOptions, num_args=1)
def main(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.cli.network_info import network_info
    from nnet3tools.nnet.model_file import read_nnet

    nnet = read_nnet(args[0])
    with naming(args[0]):
        sys.stdout.write(network_info(nnet))
