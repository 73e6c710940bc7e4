"""Determinization and search in C, with the same decisions as the Python modules, but faster.

The C files are compiled and cached like the CPU's kernels (`tensor/cpu`). Without a compiler, and
with `--cpu-kernels=numpy`, the Python modules do the work.
"""
