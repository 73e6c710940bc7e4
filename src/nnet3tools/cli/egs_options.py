"""Options of the programs that copy and merge examples, by kind of examples."""

from nnet3tools.cli.egs_tables import CopyOptions, DrawOptions
from nnet3tools.cli.options import OptionGroup, option, option_group
from nnet3tools.training.minibatch_rules import MINIBATCH_SIZE_HELP, ExampleMergingOptions


class FrameCopyOptions(OptionGroup):
    """Options of nnet3-copy-egs."""

    common: CopyOptions = option_group("", CopyOptions)
    frame_shift: int = option(
        0,
        "Allows you to shift time values in the supervision data (excluding iVector data).  Only "
        "really useful for topologies with modulus != 1.  Done after any frame selection.",
    )
    frame: str = option(
        "", "A number 0, 1, etc. to select a single frame of each example, or 'random'"
    )


def _frame_shift_of_sequences() -> int:
    return option(
        0,
        "Allows you to shift time values in the supervision data (excluding iVector data) - useful "
        "in augmenting data.  Note, the outputs will remain at the closest exact multiples of the "
        "frame subsampling factor",
    )


class ChainCopyOptions(OptionGroup):
    """Options of nnet3-chain-copy-egs."""

    common: CopyOptions = option_group("", CopyOptions)
    frame_shift: int = _frame_shift_of_sequences()


class DiscriminativeCopyOptions(DrawOptions):
    """Options of nnet3-discriminative-copy-egs."""

    frame_shift: int = _frame_shift_of_sequences()


class SequenceMergeOptions(ExampleMergingOptions):
    """Options of nnet3-discriminative-merge-egs."""

    minibatch_size: str = option("64", MINIBATCH_SIZE_HELP)


class ChainMergeOptions(SequenceMergeOptions):
    """Options of nnet3-chain-merge-egs."""

    multilingual_eg: bool = option(
        False,
        "Set to true if your egs have keys such as key?lang=NAME: outputs are then called "
        "output-NAME, and minibatches get ?lang=NAME as well (chain2 recipes)",
    )
