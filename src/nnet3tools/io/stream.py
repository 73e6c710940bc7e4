"""Reader and Writer, Kaldi's streams."""

from __future__ import annotations

from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

__all__ = ["Reader", "Writer"]
