"""Kaldi's --minibatch-size: how many examples of which size make a minibatch."""

from __future__ import annotations

import functools
import re

from nnet3tools.errors import OptionError, TextError
from nnet3tools.io import log
from nnet3tools.options import OptionGroup, option

MINIBATCH_SIZE_HELP = (
    "Minibatch size: an integer, or a list of sizes and ranges (32,64 or 16:32,64,128), of "
    "which all but the largest serve only when the input has ended. May differ by example "
    "size (largest number of frames): --minibatch-size=128=64:128,256/256=32:64,128; the "
    "rule with the nearest size holds."
)


class ExampleMergingOptions(OptionGroup):
    """Options of nnet3-merge-egs; class MinibatchRules parses `minibatch_size`."""

    compress: bool = option(
        False, "If true, compress the output examples (only for writing to disk)"
    )
    measure_output_frames: str = option("deprecated", "Ignored (for back-compatibility)")
    discard_partial_minibatches: str = option("deprecated", "Ignored (for back-compatibility)")
    minibatch_size: str = option("256", MINIBATCH_SIZE_HELP)
    multilingual_eg: bool = option(False, "Ignored here; used by chain2 recipes only")

    def rules(self) -> MinibatchRules:
        """The rules of --minibatch-size; the first call warns about deprecated options."""
        return self._rules

    @functools.cached_property
    def _rules(self) -> MinibatchRules:
        for name in ("measure_output_frames", "discard_partial_minibatches"):
            if getattr(self, name) != "deprecated":
                log.warning(
                    f"The --{name.replace('_', '-')} option is deprecated and will be ignored."
                )
        return MinibatchRules(self.minibatch_size)


class MinibatchRules:
    """The minibatch sizes that --minibatch-size allows, by size (rows) of the examples."""

    def __init__(self, text: str) -> None:
        """Read the value of --minibatch-size; OptionError if it is malformed."""
        if re.fullmatch("[1-9][0-9]{0,8}", text):  # mostly, and then without pyparsing
            self._ranges_for_size = {0: [(int(text), int(text))]}
            return
        from nnet3tools.grammars.schedules import read_minibatch_rules

        try:
            self._ranges_for_size = read_minibatch_rules(text)
        except TextError as error:
            raise OptionError(str(error)) from None

    def minibatch_size(self, size_of_example: int, num_available: int, input_ended: bool) -> int:
        """How many examples to merge now; 0: wait or, if `input_ended`, drop the examples."""
        nearest = min(self._ranges_for_size, key=lambda size: abs(size - size_of_example))
        ranges = self._ranges_for_size[nearest]
        if not input_ended:
            largest = max(end for _, end in ranges)
            return largest if largest <= num_available else 0
        return max(
            min(end, num_available) if begin <= num_available else 0 for begin, end in ranges
        )
