"""The replay of Kaldi's graph search in C, ten to eighty times as fast as queue_search.py.

The C file is compiled and cached like the CPU's kernels (`tensor/cpu`). Without a compiler, and
with `--cpu-kernels=numpy`, queue_search.py does the work.
"""
