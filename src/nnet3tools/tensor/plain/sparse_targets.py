"""Single elements of a matrix on NumPy."""

from __future__ import annotations

from nnet3tools.tensor.registry import implements
from nnet3tools.tensor.sparse_targets import dot_elements, set_elements

implements("set_elements", "numpy")(set_elements.reference)
implements("dot_elements", "numpy")(dot_elements.reference)
