"""The command-line programs, one small module each."""

import os

# One BLAS thread, as in Kaldi: sums are then the same on every machine, and the many small products
# of recurrent networks run up to 30 times faster than with synchronized threads. Must be set before
# NumPy is imported. OMP_NUM_THREADS=N requests more threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
