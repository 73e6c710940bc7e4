"""Compiled kernels of the CPU: formulas and operators in C, compiled by the machine's compiler.

Recorded calls become jobs (`calls.py`), and jobs run in one call of the C runtime (`jobs.py`).
KernelPolicy (tensor/kernel_policy.py) decides which calls do.
"""
