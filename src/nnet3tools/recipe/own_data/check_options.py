"""Limits of the checks of users' data, as options of programs."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.options import option


@dataclass(frozen=True)
class CheckOptions:
    """Limits of the checks."""

    max_seconds: float = option(30.0, "Utterances longer than this are left out")
    max_unknown: float = option(
        0.1, "Largest share of running words that may be missing from the lexicon"
    )
    num_shown: int = option(10, "Most faults of each kind that are listed")
