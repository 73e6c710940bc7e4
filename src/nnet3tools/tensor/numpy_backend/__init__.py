"""The NumPy backend: importing it registers its implementations."""

from nnet3tools.tensor.numpy_backend import basics, naive, normalize, rows, softmax  # noqa: F401
