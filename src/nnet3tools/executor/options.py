"""Options of running a program (`--computation.*`)."""

from __future__ import annotations

from nnet3tools.options import OptionGroup, option


class ComputeOptions(OptionGroup):
    """The options --computation.*, which say how NnetComputer runs a program."""

    debug: bool = option(
        False,
        "If true, turn on debug for the neural net computation (very verbose!) "
        "Will be turned on regardless if --verbose >= 5",
    )
    profile: bool = option(
        False, "If true, measure the time of every command and log it at the end."
    )
    cuda_graph: bool = option(
        True,
        "On a GPU, capture programs as CUDA graphs at their third use and replay them "
        "(host-side steps are run in between).",
    )
