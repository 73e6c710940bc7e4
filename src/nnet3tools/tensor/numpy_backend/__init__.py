"""The NumPy backend: importing it registers its implementations."""

from nnet3tools.tensor.numpy_backend import (  # noqa: F401
    aggregate,
    basics,
    compress,
    concatenate,
    csr,
    element,
    elements,
    gather,
    groups,
    gru,
    layer_norm,
    normalize,
    order,
    patches,
    products,
    random,
    ranges,
    rows,
    softmax,
    transpose,
)
