"""One folder for each operator, or family of small operators, that is not a formula.

`NAME/__init__.py` declares the operator; its body is the reference in NumPy. Beside it stand, where
they are needed:

    plain.py                NumPy code that is faster than the reference; may be in __init__.py
    cpu.py, kernel.c        compiled code for the CPU, and what turns a call into jobs of it
    cuda.py, kernel.cuh     the same for CUDA

Modules are found by these names and imported when the first array of the device is seen: no list
elsewhere names an operator.
"""
