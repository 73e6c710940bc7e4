"""With NNET3TOOLS_POISON=1 a use of memory that nobody has written shows as NaN."""

import os
import subprocess
import sys

READ_UNDEFINED = """
import numpy as np
from nnet3tools import tensor

new = tensor.empty((5, 3))
assert np.isnan(new).all()
new[:] = 2.0
with tensor.scratch((5, 3), like=new) as first:
    assert np.isnan(first).all()
    first[:] = 1.0
with tensor.scratch((5, 3), like=new) as again:
    assert np.isnan(again).all()  # the same memory as before
    tensor.add(again, new)
    assert np.isnan(again).all()
    tensor.copy(again, new)
    assert (again == 2.0).all()
"""


def test_new_and_scratch_arrays_are_nan() -> None:
    environment = {**os.environ, "NNET3TOOLS_POISON": "1"}
    subprocess.run([sys.executable, "-c", READ_UNDEFINED], env=environment, check=True)
