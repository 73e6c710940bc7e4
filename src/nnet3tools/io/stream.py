"""Reader and Writer, Kaldi's streams."""

from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

__all__ = ["Reader", "Writer"]
