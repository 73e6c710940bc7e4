"""The CPU's compiled kernels: formulas and moves of rows as C, for what runs again and again.

Recorded calls (tensor/recording.py) become jobs of C functions (`calls`), which the machine's
compiler makes of the formulas' lowered form at the first run that wants them. NumPy, the reference,
does what has no kernel, what runs live, and everything where there is no compiler.
"""
