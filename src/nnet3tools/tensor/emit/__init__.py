"""Source of kernels from lowered formulas, in C and in CUDA C++.

`walk` says how operands are found in memory, `body` spells instructions in a dialect. The loops
around them are in c_*.py for CPUs and cuda_*.py for GPUs.
"""
