"""The part of nnet3-compute that takes utterances apart into chunks (to be filled in)."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.errors import OptionError
from nnet3tools.executor.options import ComputeOptions

__all__ = ["UtteranceOptions", "compute_utterances"]


@dataclass(frozen=True)
class UtteranceOptions:
    """Options of nnet3-compute for utterances."""


def compute_utterances(
    options: UtteranceOptions, compute: ComputeOptions, use_gpu: str, args: list[str]
) -> int | None:
    """Read features, write outputs."""
    raise OptionError("nnet3-compute needs --computation so far")
