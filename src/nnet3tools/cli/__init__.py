"""The programs, one small module each."""

import os

# One BLAS thread, as Kaldi's: sums then come out the same on every machine, and the many small
# products of recurrent networks run up to 30 times faster than with threads that wait for each
# other. Set before NumPy is loaded, which is why it stands here. OMP_NUM_THREADS=N asks for more.
os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
