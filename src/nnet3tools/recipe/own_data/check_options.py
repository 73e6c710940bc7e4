"""Limits of the checks of users' data, as options of programs."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.options import option


@dataclass(frozen=True)
class CheckOptions:
    """Limits of the checks."""

    frame_seconds: float = option(
        0.03, "Seconds of a frame of the network's output: frame shift times subsampling factor"
    )
    max_seconds: float = option(30.0, "Utterances longer than this are left out")
    max_unknown: float = option(
        0.1, "Largest share of running words that may be missing from the lexicon"
    )
    num_threads: int = option(0, "Files that are read at once; 0: the number of processors")
