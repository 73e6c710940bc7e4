"""nnet3-init: make a network from a config, or extend an existing network."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log

USAGE = """Initialize a nnet3 network from a config file. The output is a 'raw' network, without
transition model and priors. If an existing network is given first, the config
adds to it, and replaces its nodes and components of the same names.

Usage:  nnet3-init [options] [<existing-model-in>] <config-in> <raw-nnet-out>
e.g.:
 nnet3-init nnet.config 0.raw
or: nnet3-init 1.raw nnet.config 2.raw
See also: nnet3-copy, nnet3-info
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    srand: int = option(0, "Seed for random number generator")


@program("nnet3-init", USAGE, Options, num_args=(2, 3))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools import tensor
    from nnet3tools.nnet.model_file import apply_config_file, read_nnet, write_nnet
    from nnet3tools.nnet.nnet import Nnet

    tensor.random.seed(options.srand)
    *existing, config, nnet_out = args
    nnet = Nnet()
    if existing:
        nnet = read_nnet(existing[0])
        log.log(f"Read raw neural net from {existing[0]}")
    apply_config_file(nnet, config)
    write_nnet(nnet, nnet_out, options.binary)
    log.log(f"Initialized raw neural net and wrote it to {nnet_out}")
