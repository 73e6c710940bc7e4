"""Acceptors of supervisions made in C, faster than by the Python modules and with the same bytes.

The C files are compiled and cached like the CPU kernels (`tensor/cpu`). The Python modules do the
jobs that the C code rejects, and all jobs without a compiler or with `--cpu-kernels=numpy`.
"""
