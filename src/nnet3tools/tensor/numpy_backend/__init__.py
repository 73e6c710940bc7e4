"""The NumPy backend: importing it registers its implementations."""

from nnet3tools.tensor.numpy_backend import (  # noqa: F401
    basics,
    compress,
    element,
    elements,
    groups,
    naive,
    normalize,
    patches,
    rows,
    softmax,
)
