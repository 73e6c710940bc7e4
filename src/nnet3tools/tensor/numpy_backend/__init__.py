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
    layer_norm,
    lstm,
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
from nnet3tools.tensor.numpy_backend.recalling import recall_calls

recall_calls(
    "batch_norm",
    "batch_norm_backprop",
    "diff_normalize_per_row",
    "layer_norm",
    "layer_norm_backprop",
    "log_softmax",
    "log_softmax_backprop",
    "lstm_nonlinearity",
    "lstm_nonlinearity_backprop",
    "normalize_per_row",
    "rms_norm",
    "rms_norm_backprop",
    "softmax",
    "softmax_backprop",
)
