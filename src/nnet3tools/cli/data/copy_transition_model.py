"""copy-transition-model: copies the transition model of an acoustic model."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log

USAGE = """Copies a transition model (this can be used to separate transition
 models from the acoustic models they are written with.
Usage:  copy-transition-model [options] <transition-model or model file> <transition-model-out>
e.g.:
 copy-transition-model --binary=false 1.mdl 1.txt
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode.")


@program("copy-transition-model", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.io.files import open_output
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    model = TransitionModel.load(args[0])
    with open_output(args[1], options.binary) as writer:
        model.write(writer)
    log.log("Copied transition model.")
