"""The NumPy backend: importing it registers its implementations."""

from nnet3tools.tensor.numpy_backend import (  # noqa: F401
    aggregate,
    basics,
    batch_norm,
    compress,
    concatenate,
    csr,
    element,
    elements,
    gather,
    groups,
    gru,
    lstm,
    order,
    patches,
    products,
    random,
    ranges,
    rows,
    transpose,
)
