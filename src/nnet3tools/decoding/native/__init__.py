"""Determinization and search in C: the same decisions as the Python modules, for their speed.

The C files are compiled and kept as the CPU's kernels are (`tensor/cpu`); where there is no
compiler, and with `--cpu-kernels=numpy`, the Python modules do the work.
"""
