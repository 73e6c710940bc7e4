"""Acceptors of supervisions in C: the same bytes as the Python modules make, for their speed.

The C files are compiled and kept as the CPU's kernels are (`tensor/cpu`). What they leave, and
everything where there is no compiler or with `--cpu-kernels=numpy`, is done by the Python modules.
"""
