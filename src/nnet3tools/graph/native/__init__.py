"""Kaldi's graph search in C, hop by hop as the Python one goes, for its speed.

The C file is compiled and kept as the CPU's kernels are (`tensor/cpu`); where there is no
compiler, and with `--cpu-kernels=numpy`, the Python modules do the work.
"""
