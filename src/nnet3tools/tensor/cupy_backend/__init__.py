"""The CuPy backend: importing it registers its implementations. CuPy is imported when one runs."""

from nnet3tools.tensor.cupy_backend import (  # noqa: F401
    aggregate,
    basics,
    batch_norm,
    concatenate,
    element,
    fisher,
    gathering,
    gru,
    lstm,
    products,
    random,
    rows,
    special,
    transpose,
)
