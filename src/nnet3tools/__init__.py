"""Kaldi's nnet3 neural networks as a Python toolkit."""

__version__ = "0.1.0"
