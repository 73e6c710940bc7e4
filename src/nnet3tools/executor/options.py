"""Options of running a program (`--computation.*`)."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ComputeOptions"]


@dataclass(frozen=True)
class ComputeOptions:
    """How a program is run."""

    debug: bool = field(
        default=False,
        metadata={
            "help": "If true, turn on debug for the neural net computation (very verbose!) "
            "Will be turned on regardless if --verbose >= 5"
        },
    )
    profile: bool = field(
        default=False,
        metadata={"help": "If true, measure the time of every command and log it at the end."},
    )
    cuda_graph: bool = field(
        default=True,
        metadata={
            "help": "On a GPU, capture programs as CUDA graphs at their third use and replay them "
            "(host-side steps are run in between)."
        },
    )
