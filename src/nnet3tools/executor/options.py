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
