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
from nnet3tools.tensor.numpy_backend.recalling import recall_calls

recall_calls(
    "batch_norm",
    "batch_norm_backprop",
    "lstm_nonlinearity",
    "lstm_nonlinearity_backprop",
)
