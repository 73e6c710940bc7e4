"""Options of the programs that write lattices. Only declarations, without loading NumPy."""

from nnet3tools.cli.options import OptionGroup, option, option_group
from nnet3tools.decoding.options import LatticeDecoderOptions
from nnet3tools.recognizer.utterances import IvectorOptions


class LatgenOptions(OptionGroup):
    """The common options of nnet3-latgen-faster and nnet3-latgen-faster-batch."""

    decoder: LatticeDecoderOptions = option_group("", LatticeDecoderOptions)
    inputs: IvectorOptions = option_group("", IvectorOptions)
    word_symbol_table: str = option("", "Symbol table for words [for debug output]")
    allow_partial: bool = option(
        False, "If true, produce output even if end state was not reached."
    )

    def check(self) -> None:
        """OptionError if an option's value is out of its range."""
        self.decoder.check()
        self.inputs.check()
